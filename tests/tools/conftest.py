from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from linearizability.targets import Target, open_target
from tests.tools.jvm import Ran, Tools, shared_tools


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    config = {"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "300"}
    with open_target("reference:1", folder=tmp_path_factory.mktemp("tools"), config=config) as target:
        yield target


@pytest.fixture(scope="session")
def tools() -> Tools:
    return shared_tools()


class Admin:
    """Kafka's tools, each with the broker's address."""

    def __init__(self, tools: Tools, broker: Target) -> None:
        self._tools = tools
        self.broker = broker

    def __call__(self, tool: str, *arguments: object, stdin: str = "") -> Ran:
        first: tuple[object, ...] = ()
        if tool == "kafka-cluster":
            first, arguments = arguments[:1], arguments[1:]
        return self._tools.run(tool, *first, "--bootstrap-server", self.broker.bootstrap, *arguments, stdin=stdin)

    def topic(self, name: str, *arguments: Any, partitions: int = 1) -> str:
        """Create a topic and return its name."""
        self("kafka-topics", "--create", "--topic", name, "--partitions", partitions, *arguments).well()
        return name

    def produce(self, topic: str, *values: str) -> None:
        """Write these values by the console producer."""
        self("kafka-console-producer", "--topic", topic, stdin="".join(f"{value}\n" for value in values)).well()

    def offsets(self, topic: str, *arguments: object) -> dict[int, int]:
        """Partition -> offset, as kafka-get-offsets prints them."""
        lines = self("kafka-get-offsets", "--topic", topic, *arguments).well().split()
        return {int(partition): int(offset) for _, partition, offset in (line.rsplit(":", 2) for line in lines)}


@pytest.fixture
def admin(tools: Tools, broker: Target) -> Admin:
    return Admin(tools, broker)
