"""A run's view of the cluster through the raw wire: making its topic, seeing leaders, in-sync replicas, the controller.

A node that is cut off names leaders of the past. So every node is asked, and for each partition the answer with the
highest leader epoch counts (before Kafka 2.1 there is none in Metadata; then the answer that most nodes give).
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from linearizability.client.errors import error_name
from linearizability.client.requests import new_topic
from linearizability.targets.target import Node, TargetError
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.metadata import MetadataRequest

ASK_TIMEOUT_S = 1.5
PREFERRED = 0
"""ElectLeaders' election type for preferred leaders."""
METADATA_TOPIC = "__cluster_metadata"
KEY_TYPES = {"group": 0, "transaction": 1}
ONE_KEY_V = 3
"""The last version of FindCoordinator that asks for one key, as the first did."""
AGAIN = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REPLICATION_FACTOR,
     ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)  # fmt: skip
"""CreateTopics errors of a cluster that is not yet complete."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as the nodes that answer see it. `leader` -1: none."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster's state by the nodes that answered."""

    answered: frozenset[int] = frozenset()
    controller: int = -1
    partitions: Mapping[int, PartitionView] = field(default_factory=dict[int, PartitionView])

    def complete(self, partitions: int) -> bool:
        """Whether every partition has a leader and all its replicas in sync."""
        return len(self.partitions) == partitions and all(
            view.leader >= 0 and set(view.in_sync) == set(view.replicas) for view in self.partitions.values()
        )


def look(nodes: Sequence[Node], topic: str) -> ClusterView:
    """Ask all nodes at once; those that do not answer in time are left out."""
    with ThreadPoolExecutor(max(len(nodes), 1)) as pool:
        answers = [
            (node, answer) for node, answer in zip(nodes, pool.map(lambda n: _ask(n, topic), nodes), strict=True)
        ]
    present = [(node.id, answer) for node, answer in answers if answer is not None]
    seen: dict[int, list[PartitionView]] = {}
    for _, answer in present:
        for entry in answer.topics[0].partitions if answer.topics else []:
            view = PartitionView(
                entry.leader_id, entry.leader_epoch, tuple(entry.replica_nodes), tuple(sorted(entry.isr_nodes))
            )
            seen.setdefault(entry.partition_index, []).append(view)
    controllers = Counter(answer.controller_id for _, answer in present if answer.controller_id >= 0)
    return ClusterView(
        frozenset(node for node, _ in present),
        controllers.most_common(1)[0][0] if controllers else -1,
        {partition: _newest(views) for partition, views in sorted(seen.items())},
    )


def _newest(views: list[PartitionView]) -> PartitionView:
    highest = max(view.epoch for view in views)
    return Counter(view for view in views if view.epoch == highest).most_common(1)[0][0]


def _ask(node: Node, topic: str) -> Any:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    try:
        with Wire.connect(node.host, node.port, timeout_s=ASK_TIMEOUT_S) as wire:
            version = wire.version_of(MetadataRequest)
            if version < 4:
                request.allow_auto_topic_creation = True  # always so before version 4
            return wire.call(request, version)
    except (WireError, ValueError):
        return None


class Coordinated(NamedTuple):
    """A group or a transactional id, which has a coordinator."""

    kind: Literal["group", "transaction"]
    name: str


def find_coordinator(nodes: Sequence[Node], what: Coordinated) -> int:
    """The node that the first to answer names; -1 where no node knows one."""
    request = FindCoordinatorRequest(key=what.name, key_type=KEY_TYPES[what.kind])
    for node in nodes:
        try:
            with Wire.connect(node.host, node.port, timeout_s=ASK_TIMEOUT_S) as wire:
                answer = wire.call(request, min(wire.version_of(FindCoordinatorRequest), ONE_KEY_V))
        except (WireError, ValueError):
            continue
        if answer.error_code == ErrorCode.NONE:
            return answer.node_id
    return -1


def find_controller(nodes: Sequence[Node], named: int) -> int:
    """The leader of the metadata's quorum, as the first that knows reports it; `named` by Metadata where there is no quorum.

    In a cluster that has one, brokers name each other at random in Metadata, for any of them forwards (KIP-590).
    """
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    for node in nodes:
        try:
            with Wire.connect(node.host, node.port, timeout_s=ASK_TIMEOUT_S) as wire:
                answer = wire.call(DescribeQuorumRequest(topics=[topic]))
        except (WireError, ValueError):
            continue
        reported = [each for entry in answer.topics for each in entry.partitions if each.error_code == ErrorCode.NONE]
        if answer.error_code == ErrorCode.NONE and reported and reported[0].leader_id >= 0:
            return reported[0].leader_id
    return named


def served_apis(nodes: Sequence[Node]) -> set[int]:
    """The keys of the APIs that the first node to answer serves. Errors: TargetError where none does."""
    for node in nodes:
        try:
            with Wire.connect(node.host, node.port, timeout_s=5) as wire:
                return {*wire.versions()}
        except WireError:
            continue
    raise TargetError("no node responds to ApiVersions")


class TopicRefused(TargetError):
    """The target refused a topic for good."""

    def __init__(self, topic: str, code: int, message: str | None) -> None:
        super().__init__(f"the topic {topic} was refused: {error_name(code)} {message or ''}".strip())
        self.code = code


class TopicNotMade(TargetError):
    """The target did not make a topic in time."""


def create_topic(
    nodes: Sequence[Node],
    topic: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    replicas: Sequence[int] = (),
    within_s: float = 60.0,
) -> None:
    """Make the topic and wait until its replicas are all in sync. Errors: TopicNotMade, TopicRefused.

    A topic with one replica is made without configurations where the target does not know them: they concern further replicas.
    `replicas` hold every partition, the preferred leader first; when none are named, the cluster chooses for each.
    Before CreateTopics (0.10.1) a Metadata request creates the topic, with the brokers' default configuration.
    """
    request = _creation(topic, partitions, replication_factor, configs, replicas)
    until = time.monotonic() + within_s
    last = "no node answered"
    made = False
    while time.monotonic() < until:
        if not made:
            for node in nodes:
                try:
                    last = _create(node, request)
                except TopicRefused as refused:
                    plain = _creation(topic, partitions, replication_factor, {}, replicas)
                    if refused.code != ErrorCode.INVALID_CONFIG or replication_factor > 1 or request == plain:
                        raise
                    request, last = plain, str(refused)
                    continue
                if not last:
                    made = True
                    break
        if made:
            view = look(nodes, topic)
            copies = {len(each.replicas) for each in view.partitions.values()}
            if view.complete(partitions) and copies == {len(replicas) or replication_factor}:
                return
            last = f"it has {len(view.partitions)} partitions with {sorted(copies)} replicas"
        time.sleep(0.2)
    raise TopicNotMade(f"the topic {topic} could not be made within {within_s:.0f} s: {last or 'replicas out of sync'}")


def _creation(
    topic: str, partitions: int, factor: int, configs: Mapping[str, str], replicas: Sequence[int]
) -> CreateTopicsRequest:
    placed = [replicas] * partitions if replicas else None
    wanted = new_topic(topic, partitions, configs=configs, replication_factor=factor, placed=placed)
    return CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)


def _create(node: Node, request: CreateTopicsRequest) -> str:
    """Ask one node. Returns the error, empty when the topic exists. Errors: TopicRefused."""
    try:
        with Wire.connect(node.host, node.port, timeout_s=15) as wire:
            if request.KEY not in wire.versions():
                asked = MetadataRequest.MetadataRequestTopic(name=request.topics[0].name)
                wire.call(MetadataRequest(topics=[asked]), 0)
                return ""
            result = wire.call(request).topics[0]
    except (WireError, ValueError) as error:
        return str(error)
    if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return ""
    sentence = f"{error_name(result.error_code)} {getattr(result, 'error_message', None) or ''}".strip()
    if result.error_code in AGAIN:
        return sentence
    raise TopicRefused(request.topics[0].name, result.error_code, getattr(result, "error_message", None))


def elect_preferred(nodes: Sequence[Node], topic: str, partitions: int) -> None:
    """Ask for the first of each partition's replicas to lead it; `look` shows whether it does."""
    wanted = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[*range(partitions)])
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=[wanted], timeout_ms=5_000)
    for node in nodes:
        try:
            with Wire.connect(node.host, node.port) as wire:
                if wire.call(request).error_code == ErrorCode.NONE:
                    return
        except (WireError, ValueError):
            continue
