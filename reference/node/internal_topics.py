"""The topics in which coordinators keep their state, and which node coordinates what. (COO-01 to COO-04)"""

from __future__ import annotations

from functools import lru_cache

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.node.peers import CONTROLLER_TIMEOUT_MS, AskController
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.primitives import NodeId, TimestampMs, TopicName
from reference.protocol.schema import Message
from reference.storage.log_directory import Logger

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

_SETTINGS = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}
"""What the broker's settings for a topic begin with."""


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
