"""kcat, Debian's command-line client: an old librdkafka (2.0.2 on Debian 12)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from threading import Event

from tests.clients.client import PLAIN, TIMEOUT_S, CannotDo, Message, PipeStream, Sending, Stream, StreamingClient

KEY_ENDS = "|"


class Kcat(StreamingClient):
    def __init__(self, bootstrap: str, program: Path) -> None:
        super().__init__(bootstrap)
        self._program = program

    def produce(self, topic: str, messages: Sequence[Message], how: Sending = PLAIN) -> None:
        """Headers belong to a run of kcat: one run for each group of neighbours with the same headers."""
        for headers, group in groupby(messages, key=lambda message: message.headers):
            options = [option for name, value in headers for option in ("-H", f"{name}={value}")]
            idempotent = str(how.idempotent).lower()
            for setting in (f"compression.codec={how.codec}", f"acks={how.acks}", f"enable.idempotence={idempotent}"):
                options += ["-X", setting]
            lines = [_line(message) for message in group]
            self._run("-P", "-t", topic, "-p", "0", "-Z", "-K", KEY_ENDS, *options, stdin="".join(lines))

    def read(self, topic: str, count: int) -> list[Message]:
        return self._messages("-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count))

    def read_on(self, topic: str, count: int, began: Event) -> list[Message]:
        command = ["-C", "-E", "-u", "-J", "-q", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count)]
        with subprocess.Popen(
            [str(self._program), "-b", self.bootstrap, *command], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            found: list[Message] = []
            for line in process.stdout:
                began.set()
                found.append(_message(line))
        assert process.returncode == 0, f"kcat ended with {process.returncode}"
        return found

    def read_in_group(self, topic: str, group: str, count: int) -> list[Message]:
        return self._messages("-X", "auto.offset.reset=earliest", "-c", str(count), "-G", group, topic)

    def read_since(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        return self._messages("-C", "-t", topic, "-p", "0", "-o", f"s@{timestamp_ms}", "-c", str(count))

    def stream(self, topic: str) -> Stream:
        arguments = ["-P", "-E", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", "-X", "linger.ms=5"]
        return PipeStream([str(self._program), "-b", self.bootstrap, *arguments], failure="Delivery failed")

    def _messages(self, *arguments: str) -> list[Message]:
        return [_message(line) for line in self._run("-J", "-q", *arguments).splitlines()]

    def _run(self, *arguments: str, stdin: str = "") -> str:
        command = [str(self._program), "-b", self.bootstrap, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stderr}"
        return done.stdout


def find_kcat() -> Path:
    """Errors: CannotDo where the program is not installed."""
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if not found:
        raise CannotDo("kcat is not installed (Debian: apt-get install kcat)")
    return Path(found)


def _line(message: Message) -> str:
    """With -Z an empty key or value is null."""
    key = "" if message.key is None else message.key
    return f"{key}{KEY_ENDS}{message.value or ''}\n"


def _message(line: str) -> Message:
    record = json.loads(line)
    flat = record.get("headers", [])
    return Message(record["payload"], record["key"], tuple(zip(flat[::2], flat[1::2], strict=True)))
