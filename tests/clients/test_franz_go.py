"""franz-go on the secured listeners of Apache Kafka and of the reference: each protocol and mechanism, and a delegation token."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.wire import Wire
from reference.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from reference.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from tests.clients import franz_go
from tests.clients.test_secured_clients import WAYS
from tests.targets.secured_kafka import Secured, SecuredKafka, SecuredReference
from tests.waiting import await_true

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.process,
    pytest.mark.skipif(franz_go.FOUND_GO is None, reason="franz-go is built with Go"),
]
VALUES = [f"value {number}" for number in range(50)]


@pytest.fixture(scope="module", params=[SecuredKafka, SecuredReference], ids=["kafka", "reference"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with request.param(tmp_path_factory.mktemp("broker"), tmp_path_factory.mktemp("secrets")) as opened:
        yield opened


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_it_produces_and_consumes(secured: Secured, listener: str, mechanism: str) -> None:
    done = franz_go.produce_and_consume(secured, listener, mechanism, f"{listener}-{mechanism}", VALUES)
    assert (done.returncode, done.stdout.splitlines()) == (0, VALUES), done.stderr


def has_applied(wire: Wire, token_id: str) -> bool:
    """Whether the broker has learned of the token that the controller has made."""
    return token_id in {each.token_id for each in wire.call(DescribeDelegationTokenRequest(owners=None)).tokens}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_it_logs_in_by_a_delegation_token(secured: Secured, mechanism: str) -> None:
    security = ClientSecurity.of(secured.client("SASL_SSL", mechanism))
    with Tunnels(security) as tunnels, Wire.connect(*tunnels.to("localhost", secured.ports["SASL_SSL"])) as wire:
        made = wire.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert made.error_code == 0
        await_true(lambda: has_applied(wire, made.token_id), "the token at the broker")
    hmac = base64.b64encode(made.hmac).decode()
    by_token = {"User": made.token_id, "Password": hmac, "IsToken": True}
    done = franz_go.produce_and_consume(secured, "SASL_SSL", mechanism, f"token-{mechanism}", VALUES, **by_token)
    assert (done.returncode, done.stdout.splitlines()) == (0, VALUES), done.stderr
    another = franz_go.produce_and_consume(
        secured, "SASL_SSL", mechanism, "never", VALUES, **by_token | {"Password": "AAAA"}
    )
    assert another.returncode == 1 and "SASL_AUTHENTICATION_FAILED" in another.stderr


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_what_proves_nothing_is_an_authentication_error(secured: Secured, mechanism: str) -> None:
    listener = "OAUTH" if mechanism == "OAUTHBEARER" else "SASL_SSL"
    wrong = {"Password": "another", "Bearer": secured.signer.token(aud="another")}
    done = franz_go.produce_and_consume(secured, listener, mechanism, "never", VALUES, **wrong)
    assert done.returncode == 1 and "SASL_AUTHENTICATION_FAILED" in done.stderr
