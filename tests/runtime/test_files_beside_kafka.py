"""A file that Apache Kafka 4.3.1 refuses is refused here, and one that it takes is taken, but for what is not served.

Each name is given each kind of value: negative, zero, beyond its range, of another type, an unknown choice, nothing. Then names
that must fit each other are given drawn values together.

    python -m tests.runtime.test_files_beside_kafka 0 20000     # drawn files, more than `make test` draws
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from reference.controller.broker_rules import AT_MOST, LESS, RESIZED
from reference.controller.config_definition import REQUIRED, Definition
from reference.controller.config_table import BROKER
from reference.runtime.configuration import ConfigurationError, check_configuration
from tests.kafka_classes import answers_of

SOURCE = Path(__file__).parent / "java" / "Files.java"
FILE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/data/1,/data/2",
}
NOT_SERVED = (
    "alter.config.policy.class.name", "authorizer.class.name", "client.quota.callback.class", "config.providers",
    "create.topic.policy.class.name", "kafka.metrics.reporters", "metric.reporters", "remote.log.storage.system.enable",
    "replica.selector.class", "sasl.", "security.providers", "ssl.",
)  # fmt: skip
"""Names, or their beginnings, of which values are refused here that Kafka takes: reference/README.md, "What is not"."""
ALONE = "controller.quorum.voters"
"""Without voters and bootstrap servers Kafka refuses a file; here a controller is the only voter."""
VALUES = (
    "-2147483649", "-3", "-2", "-1", "0", "1", "2", "9", "1024", "100000", "1048576", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775808", "x", "", " ", "0.5", "1.5", "-0.5", "NaN", "TRUE", "a,b", "a,a", "*",
)  # fmt: skip
TOGETHER = sorted(
    {name for pair in AT_MOST + LESS for name in pair}
    | {*RESIZED}
    | {
        "connection.failed.authentication.delay.ms", "connections.max.idle.ms", "cordoned.log.dirs",
        "log.cleaner.dedupe.buffer.size", "log.local.retention.bytes", "log.local.retention.ms", "log.retention.bytes",
        "log.retention.hours", "log.retention.minutes", "log.retention.ms", "log.roll.hours", "log.roll.jitter.hours",
        "log.roll.jitter.ms", "log.roll.ms", "max.connections.per.ip", "max.connections.per.ip.overrides",
        "queued.max.request.bytes", "socket.request.max.bytes",
    }
)  # fmt: skip
OTHERS = {
    "cordoned.log.dirs": ("*", "/data/1", "/data/2,/data/1", "/data/3", "*,/data/1", "/data/1/", "data/1", ""),
    "max.connections.per.ip.overrides": ("", "127.0.0.1:5", "127.0.0.1:0", "127.0.0.1", "127.0.0.1:x"),
}
SEEDS = 1_500


def values_of(definition: Definition) -> list[str]:
    """The values that are tried for a name: each kind of value, its default, its bounds, and one below and above each bound."""
    default = () if definition.default in (None, REQUIRED) else (str(definition.default),)
    bounds = [bound for bound in (definition.lowest, definition.highest) if bound is not None]
    near = [f"{bound + step:.0f}" for bound in bounds for step in (-1, 0, 1)]
    return [*dict.fromkeys((*VALUES, *default, *near, *definition.choices, ",".join(definition.choices)))]


def drawn(seed: int) -> dict[str, str]:
    """Two or three names that must fit each other, each near its own default or another's."""
    chance = Random(seed)
    names = chance.sample(TOGETHER, chance.choice((1, 2, 2, 3)))
    if chance.random() < 0.6:
        names[:2] = chance.choice(AT_MOST + LESS)
    files: dict[str, str] = {}
    for name in names:
        if name in OTHERS:
            files[name] = chance.choice(OTHERS[name])
            continue
        about = int(float(BROKER[chance.choice((name, *names[:1]))].default or "0")) if chance.random() < 0.8 else 0
        files[name] = str(
            about * chance.choice((1, 1, 2, 3)) // chance.choice((1, 1, 2, 3)) + chance.choice((-1, 0, 1))
        )
    return files


def compared(changes: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """The changes of the file that one of the two refuses and the other takes, with the refusal."""
    changes = list(changes)
    answers = answers_of(SOURCE, (json.dumps({**FILE, **change}) for change in changes))
    for change, (refused,) in zip(changes, answers, strict=True):
        try:
            check_configuration({**FILE, **change}, "f")
        except ConfigurationError as error:
            if refused is None and not any(name.startswith(NOT_SERVED) for name in change):
                yield f"{change}: Kafka takes it; {error}"
        else:
            if refused is not None:
                yield f"{change}: taken here; {refused}"


@pytest.mark.java
def test_each_value_of_each_name() -> None:
    changes = [{name: value} for name, definition in BROKER.items() for value in values_of(definition)]
    found = [each for each in compared(changes) if not each.startswith((f"{{'{ALONE}': ''", f"{{'{ALONE}': ' '"))]
    assert not found, "\n".join(found)


@pytest.mark.java
def test_names_that_must_fit_each_other() -> None:
    found = list(compared(map(drawn, range(SEEDS))))
    assert not found, "\n".join(found)


if __name__ == "__main__":
    print("\n".join(compared(map(drawn, range(int(sys.argv[1]), int(sys.argv[2]))))))
