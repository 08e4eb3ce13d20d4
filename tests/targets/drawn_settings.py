"""The same changes of settings to Apache Kafka and to the reference: what one refuses the other refuses, with the same error.

Each setting that may change while a broker runs is given each kind of value, for the broker and for all brokers; each of a
topic's, too. Then drawn settings that must fit each other are changed one after the other, so that each finds what earlier ones
have left.

    python -m tests.targets.drawn_settings 0 10                 # seeds 0 to 9
    python -m tests.targets.drawn_settings 0 0 --each            # each value of each setting, some 10,000 requests
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

from linearizability.client.requests import new_topic
from linearizability.targets import open_target
from linearizability.targets.kafka import SMALL_BROKER
from linearizability.targets.target import Target
from linearizability.targets.wire import Wire
from reference.controller.broker_configs import CLUSTER_WIDE, FIXED, PER_BROKER, THROTTLES
from reference.controller.broker_rules import RESIZED
from reference.controller.config_definition import Definition
from reference.controller.config_table import BROKER, TOPIC
from reference.controller.group_configs import GROUP, GROUP_RESOURCE
from reference.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from reference.protocol.errors import name_of
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.runtime.test_files_beside_kafka import values_of

KAFKA, REFERENCE = "kafka:4.3.1", "reference:1"
OURS = "1"
"""The resource name of the only broker."""
TOPIC_NAME, GROUP_NAME = "t", "g"
SET, DELETE, APPEND, SUBTRACT = range(4)
REFUSED_HERE = (*FIXED, "ssl.", "sasl.", "metric.reporters", "config.providers")
"""Settings, or their beginnings, that Kafka's broker can follow and this one cannot (reference/README.md)."""
LASTING = sorted(
    {*RESIZED}
    | {
        "group.consumer.assignment.interval.ms", "log.cleaner.dedupe.buffer.size", "log.local.retention.bytes",
        "log.local.retention.ms", "log.retention.bytes", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms",
        "log.segment.bytes", "message.max.bytes", "producer.id.expiration.ms", "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms", "compression.type", "log.cleanup.policy", "cordoned.log.dirs",
        *THROTTLES,
    }
)  # fmt: skip
"""Settings that can stay changed: requests go on."""
OF_TOPICS = sorted(
    {
        "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms", "max.message.bytes", "min.compaction.lag.ms",
        "min.insync.replicas", "retention.bytes", "retention.ms", "segment.bytes", "segment.ms", "cleanup.policy",
        "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "segment.jitter.ms",
    }
)  # fmt: skip
OF_GROUPS = sorted(GROUP)
DIRECTORY = "own"
"""Stands for the broker's only log directory."""
LISTED = {
    "cordoned.log.dirs": (
        "",
        "*",
        DIRECTORY,
        f"{DIRECTORY},{DIRECTORY}",
        "/other",
        f"*,{DIRECTORY}",
        DIRECTORY + "/",
    ),
    "max.connections.per.ip.overrides": ("", "127.0.0.1:5", "127.0.0.1:x", "127.0.0.1", "x"),
}
CONFIG = SMALL_BROKER | {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}


class Change(NamedTuple):
    """One operation on one setting of a resource."""

    kind: int
    resource: str
    name: str
    operation: int
    value: str | None


class Side:
    """One of the two brokers."""

    def __init__(self, target: Target) -> None:
        node = target.nodes[0]
        self._wire = Wire.connect(node.host, node.port)
        asked = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=OURS, configuration_keys=["log.dirs"]
        )
        (found,) = self._wire.call(DescribeConfigsRequest(resources=[asked])).results[0].configs
        self._directory = found.value
        self.said: str | None = None
        """Why the last change was refused."""
        topic = new_topic(TOPIC_NAME, 1)
        self._wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))

    def code(self, changes: Sequence[Change], validate_only: bool) -> str:
        """The error of one resource's changes."""
        config = IncrementalAlterConfigsRequest.AlterableConfig
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=changes[0].kind,
            resource_name=changes[0].resource,
            configs=[
                config(name=each.name, config_operation=each.operation, value=self._own(each)) for each in changes
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (result,) = self._wire.call(request).responses
        self.said = result.error_message
        return name_of(result.error_code)

    def _own(self, change: Change) -> str | None:
        if change.name != "cordoned.log.dirs" or change.value is None:
            return change.value
        return change.value.replace(DIRECTORY, self._directory)


def each_change() -> Iterator[Change]:
    """Each value of each setting."""
    for name in sorted(CLUSTER_WIDE | PER_BROKER | THROTTLES.keys()):
        definition = BROKER.get(name) or THROTTLES[name]
        for value in LISTED.get(name) or values_of(definition):
            yield from (Change(BROKER_RESOURCE, resource, name, SET, value) for resource in (OURS, ""))
    for kind, resource, table in ((TOPIC_RESOURCE, TOPIC_NAME, TOPIC), (GROUP_RESOURCE, GROUP_NAME, GROUP)):
        for name, definition in table.items():
            yield from (Change(kind, resource, name, SET, value) for value in values_of(definition))


def is_known(change: Change) -> bool:
    """Whether the reference may refuse what Kafka takes."""
    return change.kind == BROKER_RESOURCE and change.name.startswith(REFUSED_HERE)


def differences(kafka: Side, ours: Side, changes: Sequence[Change], validate_only: bool) -> Iterator[str]:
    codes = kafka.code(changes, validate_only), ours.code(changes, validate_only)
    if codes[0] == codes[1] or (codes[0] == name_of(0) and any(map(is_known, changes))):
        return
    shown = ", ".join(f"{each.name}={each.value!r} ({each.operation})" for each in changes)
    yield f"{changes[0].kind} {changes[0].resource!r} {shown}: {codes[0]} ({kafka.said}) and here {codes[1]} ({ours.said})"


def drawn(chance: Random) -> list[Change]:
    """One to three changes of one resource."""
    kind, resource, names, table = chance.choice(
        [
            (BROKER_RESOURCE, OURS, LASTING, BROKER | THROTTLES),
            (BROKER_RESOURCE, "", LASTING, BROKER | THROTTLES),
            (TOPIC_RESOURCE, TOPIC_NAME, OF_TOPICS, TOPIC),
            (GROUP_RESOURCE, GROUP_NAME, OF_GROUPS, GROUP),
        ]
    )
    changes: list[Change] = []
    for name in chance.sample(names, chance.choice((1, 1, 2, 3))):
        operation = chance.choices((SET, DELETE, APPEND, SUBTRACT), (12, 4, 1, 1))[0]
        value = None if operation == DELETE else drawn_value(chance, name, table[name])
        changes.append(Change(kind, resource, name, operation, value))
    return changes


def drawn_value(chance: Random, name: str, definition: Definition) -> str:
    """Mostly a value near the default, so that much of what is drawn is taken, and what comes next meets it."""
    if name in LISTED:
        return chance.choice(LISTED[name])
    number = CONFIG.get(name, definition.default)
    if chance.random() < 0.3 or definition.type not in ("int", "long", "short") or number is None:
        return chance.choice(values_of(definition))
    return str(int(number) * chance.choice((1, 1, 2, 4)) // chance.choice((1, 1, 2, 4)) + chance.choice((-1, 0, 0, 1)))


def opened(folder: Path, stack: ExitStack, other: str = REFERENCE) -> tuple[Side, Side]:
    """Both brokers."""
    sides: list[Side] = []
    for number, spec in enumerate((KAFKA, other)):
        home = folder / str(number)
        home.mkdir(parents=True)
        sides.append(Side(stack.enter_context(open_target(spec, folder=home, config=CONFIG))))
    return sides[0], sides[1]


def compared(folder: Path, seeds: Sequence[int], each: bool, steps: int = 150, other: str = REFERENCE) -> list[str]:
    """The changes that the two brokers answered differently, with both answers."""
    found: list[str] = []
    with ExitStack() as stack:
        kafka, ours = opened(folder, stack, other)
        if each:
            for change in each_change():
                found += differences(kafka, ours, [change], True)
        for seed in seeds:
            chance = Random(seed)
            for _ in range(steps):
                found += (f"seed {seed}: {one}" for one in differences(kafka, ours, drawn(chance), False))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("end", type=int, help="the seed after the last")
    parser.add_argument("--each", action="store_true", help="each value of each setting, too")
    parser.add_argument("--steps", type=int, default=150, help="of each seed")
    parser.add_argument(
        "--beside", default=REFERENCE, help="what is compared; kafka:4.3.1 shows what differs by chance"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(options.first, options.end)
        found = compared(Path(folder), seeds, options.each, options.steps, options.beside)
    print("\n".join(found))
    print(f"{len(found)} answers differ")


if __name__ == "__main__":
    main()
