"""Delegation tokens: who gets, renews and ends them, and when they end (org.apache.kafka.controller.DelegationTokenControlManager)."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from reference.controller import delegation_tokens as tokens
from reference.controller.carried import carry
from reference.controller.decision import Decision
from reference.controller.image import MetadataImage
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from reference.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from reference.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from reference.protocol.primitives import TimestampMs

SETTINGS = tokens.TokenSettings("secret", max_lifetime_ms=1_000, renewed_for_ms=300)
ALICE, BOB, EVE = "User:alice", "User:bob", "User:eve"
Renewer = CreateDelegationTokenRequest.CreatableRenewers
T0 = TimestampMs(10_000)


class TokenDecisions:
    """An image, and the decisions that were made on it."""

    def __init__(self, settings: tokens.TokenSettings = SETTINGS) -> None:
        self.image, self.settings = MetadataImage(), settings

    def _made(self, decision: Decision[Any]) -> Any:
        for record in decision.records:
            carry(self.image.carried, record)
        return decision.response

    def create(self, who: str = ALICE, at: int = T0, **fields: Any) -> Any:
        body = CreateDelegationTokenRequest(renewers=[Renewer(principal_type="User", principal_name="bob")])
        for name, value in fields.items():
            setattr(body, name, value)
        return self._made(tokens.create_token(self.image, self.settings, who, 3, body, lambda: "id", TimestampMs(at)))

    def renew(self, token: bytes, who: str, at: int, period_ms: int = -1) -> Any:
        body = RenewDelegationTokenRequest(hmac=token, renew_period_ms=period_ms)
        return self._made(tokens.renew_token(self.image, self.settings, who, body, TimestampMs(at)))

    def expire(self, token: bytes, who: str, at: int, period_ms: int = -1) -> Any:
        body = ExpireDelegationTokenRequest(hmac=token, expiry_time_period_ms=period_ms)
        return self._made(tokens.expire_token(self.image, self.settings, who, body, TimestampMs(at)))

    def sweep(self, at: int) -> None:
        self._made(tokens.remove_expired(self.image, TimestampMs(at)))

    @property
    def ids(self) -> list[str]:
        return [each.token_id for each in tokens.tokens(self.image)]


def test_a_token_has_an_hmac_of_its_id_and_two_ends() -> None:
    cluster = TokenDecisions()
    made = cluster.create()
    assert bytes(made.hmac) == hmac.digest(b"secret", b"id", hashlib.sha512)
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (T0, T0 + 300, T0 + 1_000)
    record = tokens.token(cluster.image, "id")
    assert record is not None and (record.owner, record.requester, record.renewers) == (ALICE, ALICE, [BOB])
    assert "secret" not in repr(SETTINGS)


@pytest.mark.parametrize(("asked_ms", "lifetime_ms"), [(-1, 1_000), (0, 1_000), (50, 50), (5_000, 1_000)])
def test_a_lifetime_is_at_most_the_largest(asked_ms: int, lifetime_ms: int) -> None:
    made = TokenDecisions().create(max_lifetime_ms=asked_ms)
    assert (made.max_timestamp_ms - T0, made.expiry_timestamp_ms - T0) == (lifetime_ms, min(lifetime_ms, 300))


def test_a_token_for_another_user_says_who_asked() -> None:
    cluster = TokenDecisions()
    made = cluster.create(EVE, owner_principal_type="User", owner_principal_name="alice")
    assert (made.principal_name, made.token_requester_principal_name) == ("alice", "eve")
    assert cluster.renew(made.hmac, EVE, T0).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert cluster.renew(made.hmac, ALICE, T0).error_code == ErrorCode.NONE
    (record,) = tokens.tokens(cluster.image)
    assert [tokens.concerns(record, each) for each in (ALICE, BOB, EVE, "User:x")] == [True, True, True, False]


def test_an_owner_without_a_type_gets_no_token() -> None:
    """Kafka 4.3.1 answers UNKNOWN_SERVER_ERROR."""
    cluster = TokenDecisions()
    made = cluster.create(owner_principal_type=None, owner_principal_name="alice")
    assert made.error_code == ErrorCode.UNKNOWN_SERVER_ERROR and cluster.ids == []


def test_a_renewer_that_is_no_user_is_refused() -> None:
    cluster = TokenDecisions()
    made = cluster.create(renewers=[Renewer(principal_type="Group", principal_name="g")])
    assert made.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE and cluster.ids == []
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (-1, -1, -1)


def test_owner_and_renewers_extend_a_token_up_to_its_largest_lifetime() -> None:
    cluster = TokenDecisions()
    token = cluster.create().hmac
    assert cluster.renew(token, BOB, T0 + 200).expiry_timestamp_ms == T0 + 500
    assert cluster.renew(token, ALICE, T0 + 450, 100).expiry_timestamp_ms == T0 + 550
    for step in range(550, 1_000, 150):
        ends = cluster.renew(token, ALICE, T0 + step, 10_000).expiry_timestamp_ms
        assert ends == T0 + min(1_000, step + 300)
    assert cluster.renew(token, EVE, T0 + 900).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert cluster.renew(b"another", ALICE, T0 + 900).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert cluster.renew(token, ALICE, T0 + 1_001).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_is_ended_later_or_at_once() -> None:
    cluster = TokenDecisions()
    token = cluster.create().hmac
    assert cluster.expire(token, EVE, T0).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert cluster.expire(token, BOB, T0, 20).expiry_timestamp_ms == T0 + 20
    assert cluster.expire(token, ALICE, T0 + 21, 20).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert cluster.expire(token, ALICE, T0 + 21).expiry_timestamp_ms == T0 + 21
    assert cluster.expire(token, ALICE, T0 + 21).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_what_has_expired_is_removed() -> None:
    cluster = TokenDecisions()
    cluster.create()
    cluster.sweep(T0 + 300)
    assert cluster.ids == ["id"]
    cluster.sweep(T0 + 301)
    assert cluster.ids == []


def test_without_a_secret_and_below_its_level_there_are_none() -> None:
    cluster = TokenDecisions(tokens.TokenSettings(None, 1_000, 300))
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert {
        cluster.create().error_code,
        cluster.renew(b"", ALICE, T0).error_code,
        cluster.expire(b"", ALICE, T0).error_code,
    } == {disabled}
    old = TokenDecisions()
    old.image.features["metadata.version"] = tokens.FIRST_LEVEL - 1
    assert old.create().error_code == ErrorCode.UNSUPPORTED_VERSION
