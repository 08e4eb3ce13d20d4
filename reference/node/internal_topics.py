"""The topics in which coordinators keep their state, and which node coordinates what. (COO-01 to COO-04)"""

from __future__ import annotations

from functools import lru_cache

from reference.controller.configs import Configuration
from reference.controller.image import Endpoint, MetadataImage
from reference.node.peers import CONTROLLER_TIMEOUT_MS, AskController
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.primitives import NodeId, TimestampMs, TopicName
from reference.protocol.schema import Message
from reference.storage.log_directory import Logger

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

_SETTINGS = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}
"""The prefix of the broker's settings for a topic."""


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over the UTF-16 units, in 32 bits with a sign."""
    value = 0
    utf16 = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(utf16), 2):
        value = (31 * value + int.from_bytes(utf16[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=4096)
def partition_for(key: str, partitions: int) -> int:
    """The partition that keeps a group or a transactional id: the hash's absolute value (COO-01); of -2³¹ that is 0."""
    hashed = java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def coordinator_of(image: MetadataImage, topic: TopicName, key: str) -> NodeId | None:
    """The leader of the partition that keeps a key, -1 while there is none; None while the topic does not exist."""
    found = image.topics.get(topic)
    return None if found is None else found.partitions[partition_for(key, len(found.partitions))].leader


def is_created_on_demand(name: TopicName) -> bool:
    """Whether the first question for its coordinator brings the topic about."""
    return name in _SETTINGS


class AutoTopicCreation:
    """Creates topics that clients use before they exist (Kafka's AutoTopicCreationManager)."""

    def __init__(self, configuration: Configuration, ask: AskController, log: Logger) -> None:
        self._configuration = configuration
        self._ask = ask
        self._log = log

    def create_internal(self, name: TopicName, now: TimestampMs) -> None:
        """Ask for a coordinator's topic, with the settings that Kafka gives it."""
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
        """Ask for a topic; a refusal is only logged."""

        def answered(answer: Message | None, then: TimestampMs) -> None:
            for result in answer.topics if isinstance(answer, CreateTopicsResponse) else ():
                if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._log("warning", f"topic {topic.name} was not created: {result.error_message}")

        self._ask("topics", CreateTopicsRequest(topics=[topic], timeout_ms=CONTROLLER_TIMEOUT_MS), answered, now)


FIRST_VERSION_WITH_SEVERAL_KEYS = 4

GROUP, TRANSACTION = 0, 1
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""Where the coordinators of each type of key keep their state; share groups are not coordinated here."""

_SENTENCES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details.",
}
"""What Kafka 4.3.1 says of each answer in versions 1 to 3. Later ones are silent but for a request that is refused."""


def find_coordinator(
    image: MetadataImage, creation: AutoTopicCreation, request: Request, body: FindCoordinatorRequest, now: TimestampMs
) -> FindCoordinatorResponse:
    """FindCoordinator for each key; the first request creates the internal topic."""
    if request.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        found = [_find_coordinator(image, creation, request, key, body.key_type, now) for key in body.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    found = _find_coordinator(image, creation, request, body.key, body.key_type, now)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=_SENTENCES[ErrorCode(found.error_code)],
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find_coordinator(
    image: MetadataImage, creation: AutoTopicCreation, request: Request, key: str, key_type: int, now: TimestampMs
) -> FindCoordinatorResponse.Coordinator:
    answer = FindCoordinatorResponse.Coordinator(key=key, node_id=-1, port=-1)
    topic = _TOPICS.get(key_type)
    if topic is None:
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.error_message = _SENTENCES[ErrorCode.INVALID_REQUEST]
        return answer
    leader = coordinator_of(image, topic, key)
    if leader is None:
        creation.create_internal(topic, now)
    endpoint = _endpoint_of(image, leader, request.client.listener) if leader is not None else None
    if leader is None or endpoint is None:
        answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer
    answer.node_id, answer.host, answer.port = leader, endpoint.host, endpoint.port
    return answer


def _endpoint_of(image: MetadataImage, broker: NodeId, listener: str) -> Endpoint | None:
    found = image.brokers.get(broker)
    if found is None or found.fenced:
        return None
    return next((each for each in found.endpoints if each.listener == listener), None)
