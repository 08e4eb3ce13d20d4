"""The Java client, through Kafka's console producer and consumer."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clients.client import PLAIN, Client, Message, PipeStream, Sending, Stream
from tests.tools.jvm import TOOLS, Tools, java_command

NULL = "<null>"
PRODUCER = {"parse.key": "true", "parse.headers": "true", "null.marker": NULL}
MANY = 2**31 - 1
"""The console producer tries three times unless configured otherwise."""
CONSUMER = {"print.key": "true", "print.headers": "true", "null.literal": NULL}


class JavaConsole(Client):
    def __init__(self, bootstrap: str, tools: Tools) -> None:
        super().__init__(bootstrap)
        self._tools = tools

    def produce(self, topic: str, messages: Sequence[Message], how: Sending = PLAIN) -> None:
        properties = {"enable.idempotence": str(how.idempotent).lower(), "acks": how.acks, "linger.ms": "20"}
        arguments = ["--topic", topic, "--compression-codec", how.codec]
        for name, value in PRODUCER.items():
            arguments += ["--reader-property", f"{name}={value}"]
        for name, value in properties.items():
            arguments += ["--command-property", f"{name}={value}"]
        lines = "".join(_line(message) for message in messages)
        ran = self._tools.run("kafka-console-producer", "--bootstrap-server", self.bootstrap, *arguments, stdin=lines)
        ran.well()
        assert "Error when sending" not in ran.errors, ran.errors

    def read(self, topic: str, count: int) -> list[Message]:
        return self._read(count, "--topic", topic, "--partition", "0", "--offset", "earliest")

    def read_in_group(self, topic: str, group: str, count: int) -> list[Message]:
        return self._read(count, "--topic", topic, "--group", group, "--from-beginning")

    def read_since(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        """The console consumer cannot seek by time; kafka-get-offsets can find the offset for it."""
        where = ("--bootstrap-server", self.bootstrap, "--topic", topic, "--time", timestamp_ms)
        offset = self._tools.run("kafka-get-offsets", *where).well().strip().rsplit(":", 1)[1]
        return self._read(count, "--topic", topic, "--partition", "0", "--offset", offset)

    def stream(self, topic: str) -> Stream:
        """An idempotent producer with acks=all that retries as long as it takes; in a JVM of its own."""
        properties = (
            "acks=all",
            "enable.idempotence=true",
            f"retries={MANY}",
            "delivery.timeout.ms=240000",
            "linger.ms=5",
        )
        given = [part for setting in properties for part in ("--command-property", setting)]
        command = [*java_command(), TOOLS["kafka-console-producer"], "--bootstrap-server", self.bootstrap]
        return PipeStream([*command, "--topic", topic, *given], failure="Error when sending")

    def _read(self, count: int, *arguments: str) -> list[Message]:
        formatting = [part for name, value in CONSUMER.items() for part in ("--formatter-property", f"{name}={value}")]
        limits = ("--max-messages", count, "--timeout-ms", 60_000)
        where = ("--bootstrap-server", self.bootstrap)
        ran = self._tools.run("kafka-console-consumer", *where, *arguments, *limits, *formatting)
        return [_message(line) for line in ran.well().splitlines()]


def _line(message: Message) -> str:
    headers = ",".join(f"{name}:{value}" for name, value in message.headers) or NULL
    return "\t".join([headers, message.key or NULL, message.value or NULL]) + "\n"


def _message(line: str) -> Message:
    headers, key, value = line.split("\t")
    pairs = [] if headers == "NO_HEADERS" else [tuple(pair.split(":", 1)) for pair in headers.split(",")]
    return Message(_or_none(value), _or_none(key), tuple((name, text) for name, text in pairs))


def _or_none(text: str) -> str | None:
    return None if text == NULL else text
