"""A request costs what it names, not its square: while a node handles one, it serves no other client and sends no heartbeat."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from reference.node.release import versions_of
from reference.protocol.apis import APIS
from reference.protocol.frames import encode_request
from reference.protocol.schema import Field, Message
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_access import SERVED
from tests.node.test_metadata_snapshots import FOLDER, NOW, start
from tests.node.three_nodes import calls_of

CLIENT = 9
BETWEEN_NODES = {*range(4, 8), 27, *range(52, 60), 62, 63, 64, 67, 70, 73, 80, 81, 82}
"""APIs for nodes alone."""
TOPIC, BROKER = 2, 4
NAMES = {
    "name", "topic", "topic_name", "group_id", "resource_name", "transactional_id", "user", "key", "principal_name",
    "member_id", "entity_type", "entity_name",
}  # fmt: skip
INDEXES = {"partition_index", "index", "partition", "partition_id"}
OTHERS = {"timeout_ms": 10_000, "num_partitions": 1, "replication_factor": 1}
NO_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "20971520"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def fields(table: type[Message], version: int) -> Iterator[Field]:
    return (each for each in table.FIELDS if each.versions.lowest <= version <= each.versions.highest)


def arrays(table: type[Message], version: int) -> Iterator[str]:
    """The names of the arrays in a message."""
    for field in fields(table, version):
        if field.kind == "array":
            yield field.name
            if isinstance(field.element, type):
                yield from arrays(field.element, version)


class Form(NamedTuple):
    """The form of a request: API, version, the long array, and the values of other fields."""

    key: int
    version: int
    long: str
    kind: int
    """The type of the resources of configurations."""
    has_others: bool
    """Whether other arrays have an item, and topics an id."""


def forms(key: int) -> Iterator[Form]:
    table = APIS[key].request
    for version in sorted({*versions_of(key)}):
        for long in dict.fromkeys(arrays(table, version)):
            for kind in (TOPIC, BROKER) if "Configs" in APIS[key].name else (TOPIC,):
                for has_others in (False, True):
                    yield Form(key, version, long, kind, has_others)


def message(table: type[Message], form: Form, count: int, numbers: Iterator[int]) -> Any:
    """A message with distinct names, whose long array has `count` items."""
    values: dict[str, Any] = {}
    for field in fields(table, form.version):
        is_over = (
            field.kind == "array"
            and isinstance(field.element, type)
            and form.long in arrays(field.element, form.version)
        )
        items = range(count if field.name == form.long else form.has_others or is_over)
        if field.kind == "array" and isinstance(field.element, type):
            values[field.name] = [message(field.element, form, count, numbers) for _ in items]
        elif field.kind == "array" and field.element == "string":
            values[field.name] = [f"x{next(numbers)}" for _ in items]
        elif field.kind == "array" and field.element == "uuid":
            values[field.name] = [UUID(int=next(numbers)) for _ in items]
        elif field.kind == "array":
            values[field.name] = [next(numbers) % 100 if field.element == "int8" else next(numbers) for _ in items]
        elif field.kind == "string" and field.name in NAMES:
            values[field.name] = str(next(numbers)) if form.kind == BROKER else f"x{next(numbers)}"
        elif field.name == "topic_id" and form.has_others:
            values[field.name] = UUID(int=next(numbers))
        elif field.name in INDEXES:
            values[field.name] = next(numbers)
        elif field.name == "resource_type":
            values[field.name] = form.kind
        elif field.name in OTHERS:
            values[field.name] = OTHERS[field.name]
    return table(**values)


WITH_ARRAYS = [key for key in sorted(SERVED - BETWEEN_NODES) if any(forms(key))]


def cost_of(form: Form, count: int, properties: dict[str, str]) -> int:
    """The number of Python functions that a new node calls for a request."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW, **NO_SNAPSHOTS, **properties)
    body = message(APIS[form.key].request, form, count, itertools.count(100))
    frame = encode_request(form.key, form.version, 1, "test", body)[4:]
    node.connected(CLIENT, "127.0.0.1", "PLAINTEXT")
    return calls_of(lambda: node.receive(CLIENT, frame, NOW), within="")


@pytest.mark.parametrize("has_authorizer", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("key", WITH_ARRAYS, ids=lambda key: APIS[key].name)
def test_a_named_item_costs_the_same_in_a_large_request(key: int, has_authorizer: bool) -> None:
    properties = AUTHORIZER if has_authorizer else {}
    for form in forms(key):
        few, many = (cost_of(form, count, properties) for count in (30, 300))
        assert many <= 11 * few, form
