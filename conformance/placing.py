"""Topics on certain nodes of a target whose CreateTopics ignores replica assignments (TOP-07)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from conformance.answers import error_name
from conformance.broker import Broker
from conformance.cluster_state import State
from conformance.given_topics import skip_unknown_configs
from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode

MOVED_WITHIN_S = 10.0
"""How long an empty partition may take to move."""


class Nodes(Protocol):
    """The methods of `conformance.cluster.JudgedCluster` that move a partition."""

    broker: Broker

    def state(self, topic: Topic, via: int | None = None) -> State: ...

    def await_state(
        self, topic: Topic, wanted: Callable[[State], bool], what: str, *, within_s: float = ...
    ) -> State: ...

    def await_isr(self, topic: Topic, *nodes: int) -> State: ...

    def reassign(self, topic: Topic, *replicas: int, cancel: bool = False) -> Any: ...

    def elect(self, topic: Topic, kind: int = ...) -> int: ...


def moved_topic(nodes: Nodes, name: str, configs: Mapping[str, str], replicas: tuple[int, ...]) -> Topic:
    """Create a topic of one partition with as many replicas, and move it to these nodes; the first one leads.

    Skips where the partition cannot be moved, which ELE-04 and ELE-11 judge.
    """
    broker = nodes.broker
    made = broker.create_topic(name, configs=configs, replication_factor=len(replicas))
    skip_unknown_configs(broker, made.error_code, configs)
    if made.error_code != ErrorCode.NONE:
        raise Failed(f"a topic of {len(replicas)} replicas could not be made: {error_name(made.error_code)}")
    topic = broker.await_topic(name)
    try:
        made_on = nodes.state(topic)
        if {*made_on.replicas} != {*replicas} or made_on.leader != replicas[0]:
            # First to the future leader alone, because some targets ignore the order of replicas (ELE-14).
            for goal in (replicas[:1], replicas):
                _move(nodes, topic, goal)
        if nodes.state(topic).leader != replicas[0]:
            broker.expect_error(nodes.elect(topic), ErrorCode.NONE)
            led = f"node {replicas[0]} leads"
            nodes.await_state(topic, lambda one: one.leader == replicas[0], led, within_s=MOVED_WITHIN_S)
    except Failed as failure:
        broker.skip(f"needs replicas on nodes {replicas}, where the target neither creates nor moves them: {failure}")
    nodes.await_isr(topic, *replicas)
    return topic


def _move(nodes: Nodes, topic: Topic, replicas: tuple[int, ...]) -> None:
    nodes.broker.expect_error(nodes.reassign(topic, *replicas).error_code, ErrorCode.NONE)
    moved = f"the replicas are on {replicas}"
    nodes.await_state(topic, lambda one: one.replicas == replicas, moved, within_s=MOVED_WITHIN_S)
