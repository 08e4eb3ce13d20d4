"""One API: its key, its name, its messages, and the versions that releases of Apache Kafka serve."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from reference.protocol.schema import Message

Advertised = tuple[int, int, bool, tuple[str, ...]]
"""Lowest version, highest version, whether the highest is still unstable, the listeners that serve it."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API by its key. `releases` has what each release's schemas say of it."""

    key: int
    name: str
    module: str
    releases: dict[str, Advertised]

    @property
    def request(self) -> type[Message]:
        """The request's table; its module is imported on first use."""
        return self._message("Request")

    @property
    def response(self) -> type[Message]:
        """The response's table; its module is imported on first use."""
        return self._message("Response")

    def _message(self, suffix: str) -> type[Message]:
        module = importlib.import_module(f"reference.protocol.messages.{self.module}")
        return getattr(module, self.name + suffix)
