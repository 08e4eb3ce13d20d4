"""A client's authentication by SASL, on a new connection or again on one whose session ends (KIP-368)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from linearizability.targets.security.errors import SecurityError
from linearizability.targets.security.mechanisms import Mechanism
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.schema import Message

ROUNDS = 8
"""The most rounds: more challenges than any mechanism has."""

Exchange = Callable[[bytes], Awaitable[bytes]]
"""Sends one frame, which begins with its size; returns the response frame without its size."""


@dataclass
class Authentication:
    """SaslHandshake and SaslAuthenticate (KIP-43, KIP-152) on one connection."""

    exchange: Exchange
    name: str
    """The mechanism's name, as in `sasl.mechanism`."""
    mechanism: Mechanism
    client_id: str
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """The correlation ids of the requests."""

    async def run(self) -> int:
        """Authenticate. Returns the session's lifetime in ms, 0 where it is not limited.

        Errors: SecurityError where the broker refuses; OSError, EOFError, CodecError.
        """
        versions = {api.api_key: api.max_version for api in (await self._call(ApiVersionsRequest(), 0)).api_keys}
        in_frames = versions.get(SaslHandshakeRequest.KEY, 0) >= 1
        shaken = await self._call(SaslHandshakeRequest(mechanism=self.name), int(in_frames))
        if shaken.error_code != ErrorCode.NONE:
            offered = (
                f"is none of {', '.join(shaken.mechanisms)}"
                if shaken.mechanisms
                else "is refused: no mechanism is offered"
            )
            raise SecurityError(f"{name_of(shaken.error_code)}: {self.name} {offered}")
        version = min(versions.get(SaslAuthenticateRequest.KEY, 0), SaslAuthenticateRequest.VERSIONS.highest)
        said: bytes | None = self.mechanism.first()
        lifetime_ms = 0
        for _ in range(ROUNDS):
            if said is None:
                return lifetime_ms
            if in_frames:
                answer = await self._call(SaslAuthenticateRequest(auth_bytes=said), version)
                if answer.error_code != ErrorCode.NONE:
                    raise SecurityError(f"{name_of(answer.error_code)}: {answer.error_message or 'no reason given'}")
                challenge, lifetime_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
            else:
                challenge = await self.exchange(struct.pack(">i", len(said)) + said)
            said = self.mechanism.answer(challenge)
        raise SecurityError(f"the authentication by {self.name} did not end after {ROUNDS} rounds")

    async def _call(self, request: Message, version: int) -> Any:
        number = next(self.numbers)
        frame = await self.exchange(encode_request(request.KEY, version, number, self.client_id, request))
        correlation_id, answer = decode_response(request.KEY, version, frame)
        if correlation_id != number:
            raise SecurityError(
                f"the answer to {type(request).__name__} belongs to request {correlation_id}, not {number}"
            )
        return answer
