"""The part of scramp that is used here: it has no types of its own."""

from collections.abc import Sequence

class ScramException(Exception): ...

class IterationCount:
    def __int__(self) -> int: ...

class ScramClient:
    iterations: IterationCount
    client_first_bare: str
    def __init__(
        self,
        mechanisms: Sequence[str],
        username: str,
        password: str,
        channel_binding: None = None,
        c_nonce: str | None = None,
    ) -> None: ...
    def get_client_first(self) -> str: ...
    def set_server_first(self, message: str) -> None: ...
    def get_client_final(self) -> str: ...
    def set_server_final(self, message: str) -> None: ...
