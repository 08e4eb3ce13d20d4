"""The topics in which coordinators keep their state, and the coordinator of each key. (COO-01 to COO-04)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from reference.controller.configs import Configuration
from reference.controller.image import Endpoint, MetadataImage
from reference.node.peers import CONTROLLER_TIMEOUT_MS, AskController
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.primitives import NO_NODE, NodeId, TimestampMs, TopicName
from reference.protocol.schema import Message
from reference.storage.log_directory import Logger

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

_SETTINGS: dict[TopicName, str] = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}
"""The prefix of the broker's settings for a topic."""

COORDINATED = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    utf16 = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(utf16), 2):
        value = (31 * value + int.from_bytes(utf16[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=4096)
def partition_for(key: str, partitions: int) -> int:
    """The partition of a group or a transactional id: by the hash's absolute value (COO-01), which is 0 for -2³¹."""
    hashed = java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


class CoordinatorPartitions:
    """The partition of each key in a coordinator's topic (COO-01).

    The number by which keys are divided is fixed once, when this broker has caught up with the metadata: the topic's number of
    partitions then, or the configured one if there is no topic. It does not change while the broker runs, so no key moves when
    the topic gets more partitions. A key whose partition does not exist has no coordinator: the topic was created, or created
    again, with fewer. Source: BrokerMetadataPublisher.initializeManagers of 4.3.1; with ZooKeeper, KafkaServer.startup of 3.9.2,
    which reads the topic's number from ZooKeeper.
    """

    def __init__(self, image: MetadataImage, configuration: Configuration) -> None:
        self._image = image
        self._configuration = configuration
        self._counts: dict[TopicName, int] = {}

    def settle(self, known: Mapping[TopicName, int] | None = None) -> None:
        """Fix the numbers when the broker has caught up, before it creates replicas; later calls change nothing.

        `known` has the numbers of existing topics, where the image may not have them yet.
        """
        for topic in _SETTINGS:
            if topic not in self._counts:
                self._counts[topic] = (known or {}).get(topic) or self._current(topic)

    def _current(self, topic: TopicName) -> int:
        found = self._image.topics.get(topic)
        if found is not None:
            return len(found.partitions)
        return self._configuration.integer(f"{_SETTINGS[topic]}.num.partitions")

    def is_changed(self, topic: TopicName) -> bool:
        """Whether the topic has another number of partitions than the one by which keys are divided.

        With ZooKeeper a replica's role may arrive before the image has the topic.
        """
        found = self._image.topics.get(topic)
        return found is not None and topic in self._counts and len(found.partitions) != self._counts[topic]

    def index_of(self, topic: TopicName, key: str) -> int:
        """The index of a key's partition, which need not exist."""
        return partition_for(key, self._counts[topic])

    def exists(self, topic: TopicName, key: str) -> bool:
        """Whether a key's partition exists."""
        return self._image.partition(topic, self.index_of(topic, key)) is not None

    def leader_of(self, topic: TopicName, key: str) -> NodeId:
        """The coordinator of a key; -1 if the partition has no leader, or does not exist."""
        found = self._image.partition(topic, self.index_of(topic, key))
        return NO_NODE if found is None else found.leader


def is_created_on_demand(name: TopicName) -> bool:
    """Whether the first FindCoordinator for it creates the topic."""
    return name in _SETTINGS


class AutoTopicCreation:
    """Creates topics that clients use before they exist (Kafka's AutoTopicCreationManager)."""

    def __init__(self, configuration: Configuration, ask: AskController, log: Logger) -> None:
        self._configuration = configuration
        self._ask = ask
        self._log = log

    def create_internal(self, name: TopicName, now: TimestampMs) -> None:
        """Request the creation of a coordinator's topic, with Kafka's settings."""
        integer = self._configuration.integer
        prefix = _SETTINGS[name]
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(integer(f"{prefix}.segment.bytes")),
        }
        if name == TRANSACTIONS_TOPIC:
            configs |= {
                "compression.type": "uncompressed",
                "min.insync.replicas": str(integer(f"{prefix}.min.isr")),
                "unclean.leader.election.enable": "false",
            }
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=integer(f"{prefix}.num.partitions"),
            replication_factor=integer(f"{prefix}.replication.factor"),
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        self.create(topic, now)

    def create(self, topic: CreateTopicsRequest.CreatableTopic, now: TimestampMs) -> None:
        """Request the creation of a topic; a refusal is only logged."""

        def answered(answer: Message | None, then: TimestampMs) -> None:
            for result in answer.topics if isinstance(answer, CreateTopicsResponse) else ():
                if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._log("warning", f"topic {topic.name} was not created: {result.error_message}")

        self._ask("topics", CreateTopicsRequest(topics=[topic], timeout_ms=CONTROLLER_TIMEOUT_MS), answered, now)


FIRST_VERSION_WITH_SEVERAL_KEYS = 4

GROUP, TRANSACTION = 0, 1
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""The topic of each type of key; share groups are not coordinated here."""

_SENTENCES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details.",
}
"""Kafka 4.3.1's message for each error in versions 1 to 3. Later versions have one only for an invalid request."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The parts that FindCoordinator needs."""

    image: MetadataImage
    partitions: CoordinatorPartitions
    creation: AutoTopicCreation


def find_coordinator(
    finding: Finding, request: Request, body: FindCoordinatorRequest, now: TimestampMs
) -> FindCoordinatorResponse:
    """FindCoordinator for each key; the first request creates the internal topic."""
    if request.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        found = [_find_coordinator(finding, request, key, body.key_type, now) for key in body.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    found = _find_coordinator(finding, request, body.key, body.key_type, now)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=_SENTENCES[ErrorCode(found.error_code)],
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find_coordinator(
    finding: Finding, request: Request, key: str, key_type: int, now: TimestampMs
) -> FindCoordinatorResponse.Coordinator:
    answer = FindCoordinatorResponse.Coordinator(key=key, node_id=-1, port=-1)
    topic = _TOPICS.get(key_type)
    if topic is None:
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.error_message = _SENTENCES[ErrorCode.INVALID_REQUEST]
        return answer
    leader = finding.partitions.leader_of(topic, key)
    if topic not in finding.image.topics:
        # A single-node quorum creates it at once; the response still has the coordinator from before.
        finding.creation.create_internal(topic, now)
    endpoint = _endpoint_of(finding.image, leader, request.client.listener)
    if endpoint is None:
        answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer
    answer.node_id, answer.host, answer.port = leader, endpoint.host, endpoint.port
    return answer


def _endpoint_of(image: MetadataImage, broker: NodeId, listener: str) -> Endpoint | None:
    found = image.brokers.get(broker)
    if found is None or found.fenced:
        return None
    return next((each for each in found.endpoints if each.listener == listener), None)
