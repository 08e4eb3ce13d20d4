"""SEC: delegation tokens (KIP-48, KIP-900): which clients get one, what its bearer may do, and when it expires.

The suite requests them on the controllers' listener with SASL (see `authentication`); its other connections are in plaintext,
where there are no tokens. DescribeDelegationToken is served on brokers' listeners only.
"""

from __future__ import annotations

import base64
import time
from types import SimpleNamespace
from typing import Any

from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.sasl import (
    APIS,
    EXPOSED,
    OTHER,
    OTHER_PASSWORD,
    SASL,
    USER,
    WHO_LEADS,
    exchange_scram,
    expect_authenticated,
    expect_refused,
    log_in_plain,
    unauthenticated,
)
from conformance.steps import built_on
from conformance.wire import BrokerConnection, Closed
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from reference.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from reference.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

MECHANISM = "SCRAM-SHA-256"
BY_TOKEN = "tokenauth=true"
MAX_LIFETIME_MS = 600_000
RENEWED_FOR_MS = 300_000
TOKENS = {
    **SASL,
    "delegation.token.secret.key": "of the cluster of the suite",
    "delegation.token.max.lifetime.ms": str(MAX_LIFETIME_MS),
    "delegation.token.expiry.time.ms": str(RENEWED_FOR_MS),
}
NEEDED = {**APIS, "CreateDelegationToken": 1, "RenewDelegationToken": 1, "ExpireDelegationToken": 1}
SOONER_MS = 60_000
"""A period shorter than RENEWED_FOR_MS, and longer than a busy machine delays the next request."""
AGED_S, CLOCK_MS = 1.5, 500
"""The age of a token that is renewed, and the smaller time by which the target's clock may run otherwise until then."""
SHORT_MS = 8_000
"""The lifetime of a token that must expire while the suite waits."""

Renewer = CreateDelegationTokenRequest.CreatableRenewers
ON_CONTROLLERS = "3.6"
"""The first release with tokens in KRaft."""


def create(
    connection: BrokerConnection, lifetime_ms: int = -1, renewers: tuple[str, ...] = (), version: int = 2
) -> Any:
    named = [Renewer(principal_type="User", principal_name=name) for name in renewers]
    body = CreateDelegationTokenRequest(renewers=named, max_lifetime_ms=lifetime_ms)
    return connection.call(body, version)


def new_token(
    broker: Broker, connection: BrokerConnection, lifetime_ms: int = -1, renewers: tuple[str, ...] = ()
) -> Any:
    made = create(connection, lifetime_ms, renewers)
    broker.expect_error(made.error_code, ErrorCode.NONE, what="CreateDelegationToken")
    return made


def renew(connection: BrokerConnection, hmac: bytes, period_ms: int = -1) -> Any:
    return connection.call(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)


def expire(connection: BrokerConnection, hmac: bytes, period_ms: int = -1) -> Any:
    return connection.call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)


def show(
    broker: Broker, connection: BrokerConnection, token: Any, password: str = "", extension: str = BY_TOKEN
) -> Any:
    """Authenticate with a token; return the last response."""
    secret = password or base64.b64encode(bytes(token.hmac)).decode()
    return exchange_scram(broker, connection, MECHANISM, token.token_id, secret, extension)


@built_on("SEC-21")
def await_session(broker: Broker, token: Any, least_ms: int, most_ms: int, what: str) -> None:
    """Wait until sessions that the token authenticates last for more than `least_ms`, up to `most_ms`."""

    def lasts() -> bool:
        answer = show(broker, unauthenticated(broker), token)
        return answer.error_code == ErrorCode.NONE and least_ms < answer.session_lifetime_ms <= most_ms

    broker.eventually(lasts, what)
    broker.saw(what)


def is_served(broker: Broker, token: Any) -> bool:
    """Whether a client can authenticate with the token, and gets a response to a request then."""
    connection = unauthenticated(broker)
    try:
        if show(broker, connection, token).error_code != ErrorCode.NONE:
            return False
        return connection.call(WHO_LEADS, 2).error_code == ErrorCode.NONE
    except Closed:
        return False


@requirement(
    "SEC-20",
    notices="tool: kafka-delegation-tokens shows another user, or times that are not the token's",
    source="KIP-48, KIP-900; DelegationTokenControlManager.createDelegationToken",
    sentence="CreateDelegationToken answers in every version with an id, an HMAC of 64 bytes, the requester as owner, and times: "
    "it ends after delegation.token.expiry.time.ms, and at the latest after the lifetime that was asked for, at most "
    "delegation.token.max.lifetime.ms.",
    accepted="error NONE(0); the times of the configuration, or the shorter ones that were asked for",
    since=ON_CONTROLLERS,
    configs=TOKENS,
    apis=NEEDED,
)
def created(broker: Broker) -> None:
    connection = log_in_plain(broker)
    for version in range(1, 4):
        for asked_ms, longest_ms in ((-1, MAX_LIFETIME_MS), (60_000, 60_000), (2 * MAX_LIFETIME_MS, MAX_LIFETIME_MS)):
            with broker.case(f"v{version}, {asked_ms} ms"):
                made = create(connection, asked_ms, version=version)
                broker.expect_error(made.error_code, ErrorCode.NONE)
                broker.expect_equal("the owner", (made.principal_type, made.principal_name), ("User", USER))
                broker.expect_equal("the bytes of the HMAC", len(made.hmac), 64)
                broker.expect(bool(made.token_id), "the token has an id")
                began = made.issue_timestamp_ms
                broker.expect_equal("the largest lifetime", made.max_timestamp_ms - began, longest_ms)
                broker.expect_equal("its end", made.expiry_timestamp_ms - began, min(longest_ms, RENEWED_FOR_MS))


@requirement(
    "SEC-21",
    notices=EXPOSED,
    source="KIP-48; ScramSaslServer.evaluateResponse, DelegationTokenManager.prepareScramCredentials",
    sentence="Who shows a token by SCRAM, its id as name and its HMAC as password, is let in until it ends; another password, an "
    "unknown id, and an id without tokenauth=true are refused.",
    accepted="error NONE(0), a session no longer than the token, then answers; SASL_AUTHENTICATION_FAILED(58) for the others",
    since=ON_CONTROLLERS,
    configs=TOKENS,
    apis=NEEDED,
)
def bearer(broker: Broker) -> None:
    owner = log_in_plain(broker)
    token, other = new_token(broker, owner), new_token(broker, owner)
    for each in (token, other):
        broker.eventually(lambda each=each: is_served(broker, each), "the token is known")
    connection = unauthenticated(broker)
    answer = show(broker, connection, token)
    broker.expect_error(answer.error_code, ErrorCode.NONE)
    lifetime_ms = answer.session_lifetime_ms
    broker.expect(0 < lifetime_ms <= RENEWED_FOR_MS, f"the session lasts {lifetime_ms} ms, no longer than the token")
    expect_authenticated(broker, connection)
    stranger: Any = SimpleNamespace(token_id=broker.unused_name("token"), hmac=token.hmac)
    for name, shown, password, extension in (
        ("the HMAC of another token", token, base64.b64encode(bytes(other.hmac)).decode(), BY_TOKEN),
        ("an unknown id", stranger, "", BY_TOKEN),
        ("as a user", token, "", ""),
        ("not by token", token, "", "tokenauth=false"),
    ):
        with broker.case(name):
            connection = unauthenticated(broker)
            expect_refused(broker, connection, show(broker, connection, shown, password, extension))


@requirement(
    "SEC-22",
    notices=EXPOSED,
    source="KIP-48, KIP-900; DelegationTokenControlManager.renewDelegationToken",
    sentence="RenewDelegationToken lets a token last delegation.token.expiry.time.ms from now on, or the shorter time that was "
    "asked for, never beyond its largest lifetime: for its owner and its renewers alone.",
    accepted="the new end, also for a longer time than that; bearers' sessions last as long; DELEGATION_TOKEN_OWNER_MISMATCH(63) "
    "for others, DELEGATION_TOKEN_NOT_FOUND(62) for an unknown HMAC",
    since=ON_CONTROLLERS,
    configs=TOKENS,
    apis=NEEDED,
)
def renewed(broker: Broker) -> None:
    owner, other = log_in_plain(broker), log_in_plain(broker, OTHER, OTHER_PASSWORD)
    asked_s = time.monotonic()
    own = new_token(broker, owner)
    made_s = time.monotonic()
    shared = new_token(broker, owner, renewers=(OTHER,))
    brief = new_token(broker, owner, lifetime_ms=60_000)
    for token in (own, shared, brief):
        broker.eventually(
            lambda token=token: renew(owner, token.hmac).error_code == ErrorCode.NONE, "the token is known"
        )
    with broker.case("the end"):
        time.sleep(max(0.0, made_s + AGED_S - time.monotonic()))
        for period_ms, lasts_ms in (
            (SOONER_MS, SOONER_MS),
            (-1, RENEWED_FOR_MS),
            (2 * MAX_LIFETIME_MS, RENEWED_FOR_MS),
        ):
            aged_ms = (time.monotonic() - made_s) * 1000
            answer = renew(owner, own.hmac, period_ms)
            oldest_ms = (time.monotonic() - asked_s) * 1000
            broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"renewal for {period_ms} ms")
            began_ms = answer.expiry_timestamp_ms - own.issue_timestamp_ms - lasts_ms
            broker.expect(
                aged_ms - CLOCK_MS <= began_ms <= oldest_ms + CLOCK_MS,
                f"renewed for {period_ms} ms it ends {lasts_ms} ms after a moment that is {began_ms} ms after its issue, "
                f"and it is {aged_ms:.0f} to {oldest_ms:.0f} ms old",
            )
            if lasts_ms == SOONER_MS:
                await_session(
                    broker, own, 0, SOONER_MS, "sessions last no longer than the token that was renewed for less"
                )
        await_session(
            broker, own, SOONER_MS, RENEWED_FOR_MS, "sessions last as long as the token that was renewed for more"
        )
        broker.expect_equal(
            "the end of one with a short lifetime", renew(owner, brief.hmac).expiry_timestamp_ms, brief.max_timestamp_ms
        )
    with broker.case("who may"):
        broker.expect_error(renew(other, shared.hmac).error_code, ErrorCode.NONE, what="a renewer")
        broker.expect_error(renew(other, own.hmac).error_code, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    with broker.case("an unknown HMAC"):
        for hmac in (bytes(64), b""):
            broker.expect_error(renew(owner, hmac).error_code, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


@requirement(
    "SEC-23",
    notices=EXPOSED,
    source="KIP-48, KIP-900; DelegationTokenControlManager.expireDelegationToken",
    sentence="ExpireDelegationToken lets a token end sooner, and with a negative time at once, for its owner and its renewers "
    "alone: then its bearers are refused, and it is not known.",
    accepted="the new end; SASL_AUTHENTICATION_FAILED(58) for its bearers, DELEGATION_TOKEN_NOT_FOUND(62) for its owner; "
    "DELEGATION_TOKEN_OWNER_MISMATCH(63) for others",
    since=ON_CONTROLLERS,
    configs=TOKENS,
    apis=NEEDED,
)
def expired_at_once(broker: Broker) -> None:
    owner, other = log_in_plain(broker), log_in_plain(broker, OTHER, OTHER_PASSWORD)
    token = new_token(broker, owner)
    broker.eventually(lambda: is_served(broker, token), "the token is known")
    with broker.case("another user"):
        broker.expect_error(expire(other, token.hmac).error_code, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        broker.expect(is_served(broker, token), "the token is still accepted")
    with broker.case("sooner"):
        answer = expire(owner, token.hmac, 60_000)
        broker.expect_error(answer.error_code, ErrorCode.NONE)
        broker.expect(answer.expiry_timestamp_ms < token.expiry_timestamp_ms, "the token ends sooner than before")
    with broker.case("at once"):
        broker.expect_error(expire(owner, token.hmac).error_code, ErrorCode.NONE)
        broker.eventually(lambda: not is_served(broker, token), "the token is no longer accepted")
        broker.expect_error(renew(owner, token.hmac).error_code, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        connection = unauthenticated(broker)
        expect_refused(broker, connection, show(broker, connection, token))


@requirement(
    "SEC-24",
    notices=EXPOSED,
    source="KIP-48; KafkaApis.allowTokenRequests, handleCreateTokenRequest",
    sentence="Delegation tokens are refused in plaintext, and to a client that has authenticated by one; so is a renewer that is "
    "no user.",
    accepted="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED(64) for each of the three APIs; INVALID_PRINCIPAL_TYPE(67)",
    since=ON_CONTROLLERS,
    configs=TOKENS,
    apis=NEEDED,
)
def not_allowed(broker: Broker) -> None:
    owner = log_in_plain(broker)
    token = new_token(broker, owner)
    broker.eventually(lambda: is_served(broker, token), "the token is known")
    by_token = unauthenticated(broker)
    broker.expect_error(show(broker, by_token, token).error_code, ErrorCode.NONE)
    refused = [("by a token", by_token)]
    if not broker.subject.authenticates_clients:
        refused.append(("in plaintext", broker.connect()))
    for name, connection in refused:
        for what, answer in (
            ("CreateDelegationToken", create(connection)),
            ("RenewDelegationToken", renew(connection, token.hmac)),
            ("ExpireDelegationToken", expire(connection, token.hmac)),
        ):
            with broker.case(f"{what} {name}"):
                broker.expect_error(answer.error_code, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    with broker.case("a renewer of another type"):
        body = CreateDelegationTokenRequest(renewers=[Renewer(principal_type="Group", principal_name="g")])
        broker.expect_error(owner.call(body, 2).error_code, ErrorCode.INVALID_PRINCIPAL_TYPE)


@requirement(
    "SEC-25",
    notices=EXPOSED,
    source="KIP-48, KIP-368; SaslServerAuthenticator.ReauthInfo.calcCompletionTimesAndReturnSessionLifetimeMs",
    sentence="After a token's end its bearers are not served, neither one that is connected already, nor one that comes then, "
    "and its owner cannot renew it.",
    accepted="closed, or SASL_AUTHENTICATION_FAILED(58); for the renewal DELEGATION_TOKEN_EXPIRED(66) or "
    "DELEGATION_TOKEN_NOT_FOUND(62)",
    since=ON_CONTROLLERS,
    configs=TOKENS,
    apis=NEEDED,
    deadline_s=40.0,
)
def ends(broker: Broker) -> None:
    owner = log_in_plain(broker)
    began = time.monotonic()
    token = new_token(broker, owner, lifetime_ms=SHORT_MS)
    over = time.monotonic() + SHORT_MS / 1000
    broker.eventually(lambda: is_served(broker, token), "the token is known", within_s=SHORT_MS / 2000)
    connection = unauthenticated(broker)
    answer = show(broker, connection, token)
    if time.monotonic() - began > SHORT_MS / 2000:
        broker.skip("this machine was too slow to use the token before its end")
    broker.expect_error(answer.error_code, ErrorCode.NONE)
    expect_authenticated(broker, connection)
    time.sleep(max(0.0, over - time.monotonic()) + 0.5)
    with broker.case("one that is connected"):
        connection.send(WHO_LEADS, 2, awaited=False)
        broker.expect_closed(connection)
    with broker.case("one that comes then"):
        broker.expect(not is_served(broker, token), "the token is not accepted after its end")
    broker.expect_error(
        renew(owner, token.hmac).error_code, ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    )


@requirement(
    "SEC-26",
    notices="tool: kafka-delegation-tokens reports that something else is wrong",
    source="KIP-48; DelegationTokenControlManager.isEnabled",
    sentence="Without delegation.token.secret.key there are no delegation tokens.",
    accepted="DELEGATION_TOKEN_AUTH_DISABLED(61) for each of the three APIs",
    since=ON_CONTROLLERS,
    configs=SASL,
    alone=True,
    apis=NEEDED,
)
def disabled(broker: Broker) -> None:
    connection = log_in_plain(broker)
    for name, answer in (
        ("CreateDelegationToken", create(connection)),
        ("RenewDelegationToken", renew(connection, bytes(64))),
        ("ExpireDelegationToken", expire(connection, bytes(64))),
    ):
        with broker.case(name):
            broker.expect_error(answer.error_code, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
