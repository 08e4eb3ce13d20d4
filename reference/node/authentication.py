"""SASL authentication: the requests that a connection may send before it has authenticated, and re-authentication (KIP-368).

    FIRST -- ApiVersions --> VERSIONS_KNOWN -- SaslHandshake --> TOKENS -- SaslAuthenticate --> AUTHENTICATED
      |                                                             ^                               |
      +------------------------ SaslHandshake ----------------------+<-- SaslHandshake again -------+

After a handshake of version 0 the mechanism's messages follow as size and bytes (KIP-43); after version 1 in SaslAuthenticate
requests (KIP-152). The response to a failure is delayed, so that guessing takes time (KIP-306), and closes the connection.
Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from reference.controller.configs import Configuration
from reference.controller.delegation_tokens import TokenSettings, token
from reference.node.bearer_tokens import BearerToken
from reference.node.listeners import OAUTHBEARER, SaslSettings, sasl_of
from reference.node.principals import user as user_principal
from reference.node.sasl_mechanisms import (
    Credentials,
    Mechanism,
    Refused,
    Token,
    new_mechanism,
    token_credential,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsResponse
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.protocol.primitives import NEVER, Buffer, Chance, TimestampMs
from reference.protocol.schema import Message
from reference.security.signed_tokens import KeySet

API_VERSIONS = 18
SASL_HANDSHAKE, SASL_AUTHENTICATE = SaslHandshakeRequest.KEY, SaslAuthenticateRequest.KEY

LEAST_REAUTHENTICATION_INTERVAL_MS = 1000
"""KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS."""

NONCE_BITS = 160


class State(Enum):
    """The state of a connection's authentication."""

    FIRST = auto()
    VERSIONS_KNOWN = auto()
    TOKENS = auto()
    OTHER_MECHANISM = auto()
    """The client re-authenticates by another mechanism than before: its next request fails."""
    AUTHENTICATED = auto()
    FAILED = auto()


ADMITTED: dict[State, frozenset[int]] = {
    State.FIRST: frozenset({API_VERSIONS, SASL_HANDSHAKE}),
    State.VERSIONS_KNOWN: frozenset({SASL_HANDSHAKE}),
    State.TOKENS: frozenset({SASL_AUTHENTICATE}),
    State.OTHER_MECHANISM: frozenset(),
    State.FAILED: frozenset(),
}
"""The APIs that a client may call in each state; after authentication, all."""


class AuthenticationFailed(Exception):
    """The connection must be closed, after `response` if there is one."""

    def __init__(self, reason: str, response: Message | None = None) -> None:
        super().__init__(reason)
        self.response = response


@dataclass(slots=True)
class SaslSession:
    """The authentication of one connection."""

    settings: SaslSettings
    new_mechanism: Callable[[str, SaslSettings], Mechanism]
    state: State = State.FIRST
    principal: str | None = None
    """The authenticated principal; during re-authentication the former one."""
    expires_at: TimestampMs | None = None
    by_token: bool = False
    """Whether the client authenticated by a delegation token."""
    sends_raw_tokens: bool = False
    """Whether the client's tokens come without a request around them, after a handshake of version 0."""
    _name: str = ""
    _mechanism: Mechanism | None = field(default=None, repr=False)
    _began_again: TimestampMs | None = None

    def takes(self, key: int, now: TimestampMs) -> bool:
        """Whether the next request belongs to the authentication. Errors: AuthenticationFailed if the session has expired."""
        if self.state is not State.AUTHENTICATED:
            return True
        if self.expires_at is None:
            return False
        if key == SASL_HANDSHAKE and self._may_begin_again(now):
            self._began_again = now
            self.state, self.sends_raw_tokens = State.VERSIONS_KNOWN, False
            return True
        if now >= self.expires_at:
            raise AuthenticationFailed(
                f"the session of {self.principal} has expired, and the client did not authenticate again"
            )
        return False

    def _may_begin_again(self, now: TimestampMs) -> bool:
        return self._began_again is None or now - self._began_again >= LEAST_REAUTHENTICATION_INTERVAL_MS

    def versions_answered(self) -> None:
        """Note the response to ApiVersions; the client may not request it again."""
        self.state = State.VERSIONS_KNOWN

    def handshake(self, body: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        """Select the client's mechanism. Errors: AuthenticationFailed for one that is not enabled."""
        mechanisms = [*self.settings.mechanisms]
        if body.mechanism not in mechanisms:
            self.state = State.FAILED
            raise AuthenticationFailed(
                f"the mechanism {body.mechanism!r} is not enabled",
                SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms),
            )
        if self.principal is not None and body.mechanism != self._name:
            self.state = State.OTHER_MECHANISM
        else:
            self._name = body.mechanism
            self._mechanism = self.new_mechanism(body.mechanism, self.settings)
            self.state, self.sends_raw_tokens = State.TOKENS, version == 0
        return SaslHandshakeResponse(mechanisms=mechanisms)

    def authenticate(self, body: SaslAuthenticateRequest, now: TimestampMs) -> SaslAuthenticateResponse:
        """Answer a message of the mechanism. Errors: AuthenticationFailed."""
        answer, lifetime_ms = self.token(body.auth_bytes, now)
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms, error_message=None)

    def token(self, message: Buffer, now: TimestampMs) -> tuple[bytes, int]:
        """The answer to a message of the mechanism, and the session's lifetime; 0 for no limit, or before the end of the
        exchange.

        Errors: AuthenticationFailed.
        """
        assert self._mechanism is not None
        try:
            answer = self._mechanism.answer(bytes(message), now)
            user = self._mechanism.user
            if user is None:
                return answer, 0
            self._check_unchanged(user_principal(user))
        except Refused as refused:
            self.state = State.FAILED
            again = "re-authentication" if self.principal is not None else "authentication"
            said = (
                refused.said
                or f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._name}"
            )
            raise AuthenticationFailed(
                str(refused),
                SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=said),
            ) from None
        lifetime_ms = self._lifetime_ms(self._mechanism.expires_at, now)
        self.by_token = self._mechanism.by_token
        self.principal, self.state, self._mechanism = user_principal(user), State.AUTHENTICATED, None
        self.expires_at = None if lifetime_ms is None else now + lifetime_ms
        return answer, lifetime_ms or 0

    def _lifetime_ms(self, credential_ends: TimestampMs | None, now: TimestampMs) -> int | None:
        """The time until the credential expires, or the mechanism's limit; None for no limit.

        As in Kafka an expired credential is accepted, for a session that expires at once (ReauthInfo).
        """
        limits = [self.settings.max_session_ms[self._name]]
        limits = [limit for limit in limits if limit > 0]
        if credential_ends is not None:
            limits.append(max(0, credential_ends - now))
        return min(limits, default=None)

    def _check_unchanged(self, principal: str) -> None:
        if self.principal not in (None, principal):
            changed = "Cannot change principals during re-authentication from {}: {}".format(
                *(each.replace(":", ".", 1) for each in (self.principal, principal) if each)
            )
            raise Refused(changed, changed)


def illegal_state(key: int) -> Message:
    """The answer to ApiVersions or SaslHandshake within an exchange, and to SaslAuthenticate outside of one."""
    if key == API_VERSIONS:
        return ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if key == SASL_HANDSHAKE:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


class Authenticator:
    """Creates the sessions of connections, and delays the responses to failed ones."""

    def __init__(
        self,
        configuration: Configuration,
        chance: Chance,
        wants_keys: Callable[[str], None] = lambda listener: None,
        log: Callable[[str, str], None] = lambda level, text: None,
    ) -> None:
        """`wants_keys` is called with a listener after a token with an unknown key."""
        self._wants_keys, self._log = wants_keys, log
        self._image = configuration.image
        self._configuration = configuration
        self._chance = chance
        self._tokens = TokenSettings.of(configuration)
        self._failure_delay_ms = configuration.integer("connection.failed.authentication.delay.ms")
        self._settings: dict[str, SaslSettings | None] = {}
        """By listener."""
        self._keys: dict[str, KeySet] = {}
        """The keys for OAUTHBEARER tokens, by listener."""
        self._delayed: deque[tuple[TimestampMs, Callable[[], None]]] = deque()

    def begin(self, listener: str) -> SaslSession | None:
        """The session of a new connection; None on a listener without SASL."""
        if listener not in self._settings:
            self._settings[listener] = sasl_of(self._configuration.static, listener)
        settings = self._settings[listener]
        return None if settings is None else SaslSession(settings, partial(self._new_mechanism, listener))

    def take_keys(self, listener: str, keys: KeySet) -> None:
        """Use these keys for later tokens."""
        self._keys[listener] = keys

    def _new_mechanism(self, listener: str, name: str, settings: SaslSettings) -> Mechanism:
        if name == OAUTHBEARER:
            assert settings.bearer is not None
            keys = self._keys.get(listener, KeySet([]))
            return BearerToken(settings.bearer.rules, keys, partial(self._wants_keys, listener), self._log)
        nonce = f"{self._chance.getrandbits(NONCE_BITS):x}"
        return new_mechanism(name, settings, Credentials(self._credential, self._token), nonce)

    def _credential(self, user: str, mechanism: int) -> UserScramCredentialRecord | None:
        found = self._image.carried.get((UserScramCredentialRecord, (user, mechanism)))
        return found if isinstance(found, UserScramCredentialRecord) else None

    def _token(self, token_id: str, mechanism: int) -> Token | None:
        found = token(self._image, token_id)
        if found is None or self._tokens.secret is None:
            return None
        credential = token_credential(self._tokens.hmac(token_id), token_id, mechanism)
        return Token(credential, found.owner, found.expiration_timestamp)

    def delay(self, answer: Callable[[], None], now: TimestampMs) -> None:
        """Send the response to a failed client after connection.failed.authentication.delay.ms."""
        self._delayed.append((now + self._failure_delay_ms, answer))
        self.tick(now)

    def tick(self, now: TimestampMs) -> None:
        """Send the delayed responses that are due."""
        while self._delayed and self._delayed[0][0] <= now:
            self._delayed.popleft()[1]()

    def next_deadline(self) -> TimestampMs:
        return self._delayed[0][0] if self._delayed else NEVER
