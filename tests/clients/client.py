"""The operations of a client under test: the tests are the same for each client, and a module beside this one adapts each.

Clients are configured as little as possible, and never for this broker: the tests show that they work unmodified.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 60.0
"""The time limit of a client's step, which takes well under a second on a quiet machine."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record as applications see it. All fields are text, because the command-line clients can send nothing else."""

    value: str | None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sending:
    """How records are produced."""

    codec: str = "none"
    acks: str = "all"
    idempotent: bool = False


PLAIN = Sending()


class CannotDo(Exception):
    """The client has no such ability, or lacks a library on this machine; the text names it."""


class GaveUp(Exception):
    """The client has given some records up; all others were acknowledged."""

    def __init__(self, why: str, values: Iterable[str | None]) -> None:
        super().__init__(why)
        self.values = frozenset(values)


class Stream(ABC):
    """A producer that keeps working while faults hit the broker."""

    @abstractmethod
    def send(self, value: str) -> None:
        """Send without waiting."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all records are acknowledged. Errors: GaveUp, or the client's own error, if one is not."""


class PipeStream(Stream):
    """A command that sends each line of its standard input, and ends when that does."""

    def __init__(self, command: Sequence[str], *, failure: str) -> None:
        """`failure` is the command's message about a record that was not delivered."""
        self._failure = failure
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def send(self, value: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(value + "\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        try:
            _, errors = self._process.communicate(timeout=TIMEOUT_S)
        finally:
            self._process.kill()
        assert self._process.returncode == 0, errors
        assert self._failure not in errors, errors


class Client(ABC):
    """One client library or tool."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def produce(self, topic: str, messages: Sequence[Message], how: Sending = PLAIN) -> None:
        """Produce all, in their order, and wait until the client is done with them. Errors: CannotDo."""

    @abstractmethod
    def read(self, topic: str, count: int) -> list[Message]:
        """The first `count` records of the topic's one partition, by a consumer without a group."""

    @abstractmethod
    def read_in_group(self, topic: str, group: str, count: int) -> list[Message]:
        """Subscribe, take `count` records, commit what was taken, leave. A new group begins at the start."""

    @abstractmethod
    def read_since(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        """Seek to the time, and read `count` records. Errors: CannotDo."""

    def stream(self, topic: str) -> Stream:
        """An idempotent producer with acks=all that retries as long as it takes. Errors: CannotDo."""
        raise CannotDo(f"{type(self).__name__} sends what it is given at once")


class StreamingClient(Client):
    """A client whose consumer, too, keeps working while faults hit the broker."""

    def read(self, topic: str, count: int) -> list[Message]:
        return self.read_on(topic, count, Event())

    @abstractmethod
    def read_on(self, topic: str, count: int, began: Event) -> list[Message]:
        """As `read`; `began` is set when the first record has come, after which the consumer must outlive restarts."""
