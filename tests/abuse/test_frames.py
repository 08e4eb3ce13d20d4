"""A short campaign of mutated frames authenticates no client wrongly, and the campaign finds planted bugs."""

from __future__ import annotations

import pytest

from linearizability.mutants.registry import planted
from reference.node.effects import Authenticated, Close, Respond
from reference.protocol.frames import encode_request
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.primitives import TimestampMs
from tests.abuse.frames import LISTENER, MECHANISMS, NOW, PASSWORD, PROPERTIES, STORE, Ground, Results, run
from tests.targets.secured_kafka import USER

FRAMES = 4000


def test_no_mutated_frame_gets_a_client_in() -> None:
    results = Results()
    run(FRAMES, results)
    assert results.failures == []
    assert set(results.outcomes) >= {f"{name} {outcome}" for name in MECHANISMS for outcome in ("in", "closed")}


@pytest.mark.parametrize("bug", ["unsigned-token-taken", "any-proof-taken"])
def test_a_planted_bug_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results()
    if bug == "any-proof-taken":
        monkeypatch.setattr("reference.node.sasl_mechanisms.hmac.compare_digest", lambda one, other: True)
        run(FRAMES, results)
    else:
        with planted(bug):
            run(FRAMES, results)
    assert any("is let in by a changed message" in each for each in results.failures)


def test_the_stored_campaign_found_nothing() -> None:
    stored = Results.read(STORE)
    assert stored.frames >= 1_000_000 and stored.failures == []


def test_a_failed_login_is_answered_after_its_delay_and_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROPERTIES, "connection.failed.authentication.delay.ms", "100")
    node = Ground().node

    def answered(connection: int) -> list[type]:
        effects = [each for each in node.take_effects() if isinstance(each, Respond | Close | Authenticated)]
        return [type(each) for each in effects if each.connection == connection]

    for connection, password in ((1, "guess"), (2, PASSWORD)):
        node.connected(connection, "127.0.0.1", LISTENER)
        token = f"\0{USER}\0{password}".encode()
        rows = ((SaslHandshakeRequest(mechanism="PLAIN"), 1), (SaslAuthenticateRequest(auth_bytes=token), 2))
        for at, (request, version) in enumerate(rows):
            assert at == 0 or Respond in answered(connection)
            node.receive(connection, encode_request(request.KEY, version, at, "abuse", request)[4:], NOW)
        assert (Respond in answered(connection)) is (connection == 2)
    assert node.next_deadline() <= NOW + 100
    node.tick(TimestampMs(NOW + 99))
    assert answered(1) == []
    node.tick(TimestampMs(NOW + 100))
    assert answered(1) == [Respond, Close]
