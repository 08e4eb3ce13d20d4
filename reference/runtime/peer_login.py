"""This node's authentication by SASL on a connection to another node, once and again before the session ends (KIP-368)."""

from __future__ import annotations

from dataclasses import dataclass, field

from reference.node.listeners import PLAIN
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from reference.protocol.schema import Message
from reference.security.errors import WrongSecurity
from reference.security.scram_client import ScramExchange

CLIENT_ID = "tidegauge"
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
RENEWED_AFTER = 0.85
"""The part of a session after which it is renewed, as Kafka's clients do at 85 to 95 percent of it."""


class LoginFailed(Exception):
    """The other node refuses this node, or its own proof of identity is wrong."""


@dataclass(slots=True)
class PeerLogin:
    """One authentication: send `first`, then the result of `take` for each response, until `is_done`."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_done: bool = False
    session_ms: int = 0
    """How long the other node accepts requests before this one must authenticate again; 0 for ever."""
    _scram: ScramExchange | None = field(default=None, repr=False)
    _key: int = 0

    def first(self) -> bytes:
        """The first frame."""
        return self._ask(SaslHandshakeRequest(mechanism=self.mechanism), HANDSHAKE_VERSION)

    def take(self, frame: bytes) -> bytes | None:
        """The next frame after a response; None when there is none. Errors: LoginFailed."""
        version = HANDSHAKE_VERSION if self._key == SaslHandshakeRequest.KEY else AUTHENTICATE_VERSION
        try:
            _, answer = decode_response(self._key, version, frame)
            if isinstance(answer, SaslHandshakeResponse):
                return self._take_handshake(answer)
            assert isinstance(answer, SaslAuthenticateResponse)
            return self._take_answer(answer)
        except (CodecError, WrongSecurity) as error:
            raise LoginFailed(f"its response in the SASL exchange is invalid: {error}") from error

    def _take_handshake(self, answer: SaslHandshakeResponse) -> bytes:
        if answer.error_code != ErrorCode.NONE:
            raise LoginFailed(
                f"{name_of(answer.error_code)}: {self.mechanism} is none of {', '.join(answer.mechanisms)}"
            )
        if self.mechanism == PLAIN:
            return self._token(f"\0{self.user}\0{self.password}".encode())
        self._scram = ScramExchange(self.mechanism, self.user, self.password)
        return self._token(self._scram.first())

    def _take_answer(self, answer: SaslAuthenticateResponse) -> bytes | None:
        if answer.error_code != ErrorCode.NONE:
            raise LoginFailed(f"{name_of(answer.error_code)}: {answer.error_message or 'no reason given'}")
        if self._scram is not None and (said := self._scram.answer(bytes(answer.auth_bytes))) is not None:
            return self._token(said)
        self.is_done, self.session_ms = True, answer.session_lifetime_ms
        return None

    def _token(self, message: bytes) -> bytes:
        return self._ask(SaslAuthenticateRequest(auth_bytes=message), AUTHENTICATE_VERSION)

    def _ask(self, request: Message, version: int) -> bytes:
        self._key = request.KEY
        return encode_request(request.KEY, version, 0, CLIENT_ID, request)
