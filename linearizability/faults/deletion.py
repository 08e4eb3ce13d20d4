"""A topic is deleted while it is written to: its files, indexes and replicas go away under requests that are on their way."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from linearizability.client.requests import new_topic, produce_request
from linearizability.faults.background import Background
from linearizability.faults.fault import Fault, World, register
from linearizability.faults.injection import Injection
from linearizability.faults.operating import ASK_TIMEOUT_S, wish
from linearizability.targets.target import Node
from linearizability.targets.wire import Wire, WireError
from linearizability.workload.cluster import look
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record

LAST_NAMED_V = 12
"""Produce's last version that names topics by their names."""
RECORDS = 50
VALUE = b"doomed" * 20
PAUSE_S = 0.02
AFTER_DELETION_S = 0.3
"""How long the writing continues after the topic was deleted."""
WAITS_MS = 1_000


@register
class Deletion(Fault):
    """Another topic, with a replica on every node, is made, written to without a pause, and deleted under the writing."""

    name = "deletion"
    apis = (CreateTopicsRequest, DeleteTopicsRequest)

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        name = f"{world.topic}-doomed-{len(world.writers)}"
        nodes = len(world.nodes)
        topic = new_topic(name, nodes, replication_factor=min(nodes, 3))
        if wish(world, CreateTopicsRequest(topics=[topic], timeout_ms=int(ASK_TIMEOUT_S * 1000))) is None:
            return None
        world.writers[name] = Background(f"writer to {name}", partial(write_until, world.nodes, name))
        return {"topic": name}

    def end(self, world: World, done: dict[str, Any]) -> None:
        name = done["topic"]
        state = DeleteTopicsRequest.DeleteTopicState(name=name)
        wish(world, DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=int(ASK_TIMEOUT_S * 1000)))
        writer = world.writers[name]
        writer.stopping.wait(AFTER_DELETION_S)
        world.end(writer)


def write_until(nodes: Sequence[Node], topic: str, stop: threading.Event) -> None:
    """Write to all partitions, one after the other, wherever their leaders are.

    It ignores errors: of a topic that has been deleted, of a leader that is down.
    """
    while not stop.is_set():
        for number, view in look(nodes, topic).partitions.items():
            leader = next((node for node in nodes if node.id == view.leader), None)
            if leader is not None:
                _write(leader, topic, number)
        stop.wait(PAUSE_S)


def _write(leader: Node, topic: str, partition: int) -> None:
    with suppress(WireError, ValueError), Wire.connect(leader.host, leader.port, timeout_s=1.0) as wire:
        wire.call(_request(topic, partition), min(wire.version_of(ProduceRequest), LAST_NAMED_V))


def _request(topic: str, partition: int) -> ProduceRequest:
    now = TimestampMs(int(time.time() * 1000))
    records = [Record(Offset(number), now, None, VALUE) for number in range(RECORDS)]
    return produce_request({(topic, partition): build(records)}, timeout_ms=WAITS_MS)
