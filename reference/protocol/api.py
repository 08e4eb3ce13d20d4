"""One API: its key, its name, its messages, and the versions that releases of Apache Kafka serve."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass

from reference.protocol.schema import Message, snake_case

Advertised = tuple[int, int, bool, tuple[str, ...]]
"""Lowest version, highest version, whether the highest is still unstable, the listeners that serve it."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API by its key. `releases` has its versions and listeners in each release's schemas."""

    key: int
    name: str
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
        module = importlib.import_module(f"reference.protocol.messages.{snake_case(self.name)}")
        return getattr(module, self.name + suffix)


def read_table(text: str) -> dict[int, Api]:
    """Read the table of APIs: its columns are two spaces apart; those after key and name are releases.

    A cell is a range of versions, the listeners that serve it, and `unstable` where the highest version is.
    """
    (_, _, *releases), *rows = (re.split("  +", line) for line in text.strip().splitlines())
    apis = [
        Api(
            int(key),
            name,
            {release: _read_cell(cell) for release, cell in zip(releases, cells, strict=True) if cell != "-"},
        )
        for key, name, *cells in rows
    ]
    return {api.key: api for api in apis}


def _read_cell(cell: str) -> Advertised:
    versions, *words = cell.split()
    lowest, _, highest = versions.partition("-")
    return int(lowest), int(highest), "unstable" in words, tuple(word for word in words if word != "unstable")
