"""The client's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802). The server proves that it knows the password."""

from __future__ import annotations

from scramp import ScramClient, ScramException

from reference.security.errors import WrongSecurity

MAX_ITERATIONS = 1_000_000
"""They take about a second, in which a node does nothing else. The library refuses fewer than 4,096 (RFC 7677)."""


class ScramExchange:
    """One authentication: `first`, then `answer` to each message of the server, until it returns None."""

    def __init__(self, mechanism: str, user: str, password: str, extension: str = "") -> None:
        """`extension` is added to the first message: tokenauth=true means that `user` is a delegation token's id (KIP-48)."""
        self._client = ScramClient([mechanism], user, password)
        self._extension = f",{extension}" if extension else ""
        self._has_proved = False
        """Whether the client's proof was sent, so that the server's proof comes next."""

    def first(self) -> bytes:
        """The client's first message."""
        first = self._client.get_client_first() + self._extension
        self._client.client_first_bare += self._extension  # both sides sign it
        return first.encode()

    def answer(self, message: bytes) -> bytes | None:
        """The answer to a message; None after the server's proof. Errors: WrongSecurity."""
        try:
            text = message.decode()
            if self._has_proved:
                self._client.set_server_final(text)
                return None
            self._client.set_server_first(text)
            if int(self._client.iterations) > MAX_ITERATIONS:
                raise WrongSecurity(
                    f"the server asks for {self._client.iterations} iterations of SCRAM, more than {MAX_ITERATIONS}"
                )
            self._has_proved = True
            return self._client.get_client_final().encode()
        except WrongSecurity:
            raise
        except (ScramException, ValueError) as error:
            raise WrongSecurity(f"the server's message of SCRAM is refused: {error}") from error
