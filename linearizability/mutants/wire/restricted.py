"""Correct brokers that serve less: the proxy hides APIs, versions or topic ids of the broker behind it, or delays responses.

    python -m linearizability.mutants.wire restricted         # the table
    tidegauge run --target "exec:python -m linearizability.mutants.wire adapter restricted-toy"

Such a broker's responses are correct, so a requirement that fails on it is a false accusation, unless it is among the row's
`breaks`. By default only the broker's address is known: it has no fault hooks and takes no configuration.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from linearizability.mutants.wire.proxy import Answer, Exchange, ProxiedConnection, sized
from linearizability.mutants.wire.rewriting import structures
from linearizability.targets import Target
from linearizability.targets.wire import Wire
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError, encode
from reference.protocol.frames import decode_response, encode_response
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.primitives import NO_UUID

PREFIX = "restricted-"
NEVER = 0x7FFF
"""A version that no broker serves: an ApiVersions request that is too new is forwarded in it, so that the broker refuses it."""
MOST = 0x7FFE
BY_TOPIC_ID = {"Fetch": 12, "Produce": 12, "OffsetCommit": 9, "OffsetFetch": 9, "DeleteTopics": 5, "Metadata": 9,
               "CreateTopics": 6}  # fmt: skip
"""API -> the last version without topic ids."""
TRANSACTIONS = (
    "AddPartitionsToTxn AddOffsetsToTxn EndTxn TxnOffsetCommit WriteTxnMarkers DescribeTransactions ListTransactions "
    "DescribeProducers"
)
CLASSIC = "JoinGroup SyncGroup Heartbeat LeaveGroup DescribeGroups"
COMMITTED = "OffsetCommit OffsetFetch OffsetDelete"
NEW_GROUPS = "ConsumerGroupHeartbeat ConsumerGroupDescribe"
GROUP_ADMIN = "ListGroups DescribeGroups DeleteGroups OffsetDelete ConsumerGroupDescribe"
SHARE = "ShareGroupHeartbeat ShareGroupDescribe ShareFetch ShareAcknowledge"
TOY = {"ApiVersions": (0, 2), "Metadata": (1, 4), "Produce": (3, 3), "Fetch": (4, 4), "ListOffsets": (1, 1)}
TOPIC = 2
"""The resource type of topics."""
NAMES_CONFIGS = ("CreateTopics", "AlterConfigs", "IncrementalAlterConfigs")
FEW_TOPIC_CONFIGS = (
    "cleanup.policy compression.type delete.retention.ms max.compaction.lag.ms max.message.bytes message.timestamp.type "
    "min.compaction.lag.ms retention.bytes retention.ms segment.bytes"
)
ADMIN = "CreateTopics DeleteTopics CreatePartitions DescribeConfigs AlterConfigs IncrementalAlterConfigs DeleteRecords"


@dataclass(frozen=True)
class Restriction:
    """The difference between a restricted broker and the broker behind it. Its name is that of its row."""

    what: str
    without: str = ""
    """APIs that it does not serve."""
    only: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """API -> versions, for the only APIs that it serves; empty: all APIs of the broker behind it."""
    versions: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """API -> the lowest and the highest version that it may serve."""
    oldest: bool = False
    """Whether it serves every API in its lowest version only."""
    newest: bool = False
    """Whether it serves every API but ApiVersions in its highest version only."""
    topic_ids: bool = True
    describes: bool = True
    """Whether DescribeConfigs lists anything."""
    delay_s: float = 0.0
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """The configuration of the broker behind it."""
    topic_configs: str = ""
    """The topic configurations that it has, others are INVALID_CONFIG; empty: those of the broker behind it."""
    topics: int = 0
    """The number of topics that exist before a run: `restricted-0` and so on, each with three partitions."""
    breaks: str = ""
    """Requirements that fail rightly."""
    hooks: bool = False
    """Whether it offers the fault hooks and takes the configurations of the broker behind it."""

    def range_of(self, name: str, lowest: int, highest: int) -> tuple[int, int] | None:
        """The versions that it serves of an API whose versions `lowest` to `highest` the broker behind it serves; None: none."""
        if name in self.without.split() or (self.only and name not in self.only):
            return None
        low, high = self.only.get(name) or self.versions.get(name, (0, MOST))
        if not self.topic_ids:
            high = min(high, BY_TOPIC_ID.get(name, MOST))
        lowest, highest = max(lowest, low), min(highest, high)
        if self.oldest:
            highest = lowest
        if self.newest and name != "ApiVersions":
            lowest = highest
        return (lowest, highest) if lowest <= highest else None


class Restricted:
    """The tamper that applies a restriction."""

    rewrites_requests = True

    def __init__(self, restriction: Restriction) -> None:
        self.restriction = restriction
        self._served: dict[int, tuple[int, int]] = {}
        """API key -> versions, filled from the first ApiVersions response."""

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        lowest, highest = self._served.get(exchange.key, (0, -1) if self._served else (0, NEVER))
        if lowest <= exchange.version <= highest:
            return self._with_unknown_names(exchange)
        if exchange.api != "ApiVersions":  # Kafka closes the connection after a request that it does not serve
            exchange.connection.writer.close()
            return []
        exchange.version = 0
        return [sized(exchange.frame[:2] + struct.pack(">h", NEVER) + exchange.frame[4:])]

    def _with_unknown_names(self, exchange: Exchange) -> Sequence[bytes] | None:
        """Rename the unknown topic configurations in a request, so that the broker behind it does not know them either."""
        if not self.restriction.topic_configs or exchange.api not in NAMES_CONFIGS:
            return None
        header, request = exchange.decoded()
        for config in self._unknown(request):
            config.name += ".unknown"
        return [sized(header + encode(request, exchange.version))]

    def _unknown(self, message: Any) -> list[Any]:
        """The topic configurations in a message that the restricted broker does not have."""
        entries = [
            *getattr(message, "topics", ()),
            *getattr(message, "resources", ()),
            *getattr(message, "results", ()),
        ]
        of_topics = [one for one in entries if getattr(one, "resource_type", TOPIC) == TOPIC]
        known = self.restriction.topic_configs.split()
        return [config for one in of_topics for config in one.configs or () if config.name not in known]

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        delay_s = self.restriction.delay_s
        try:
            correlation_id, message = decode_response(exchange.key, exchange.version, frame)
        except (CodecError, KeyError):
            return Answer([sized(frame)], delay_s=delay_s) if delay_s else None
        if not self._rewrite(exchange, message):
            return Answer([sized(frame)], delay_s=delay_s) if delay_s else None
        encoded = b"".join(encode_response(exchange.key, exchange.version, correlation_id, message))  # type: ignore[arg-type]
        return Answer([encoded], delay_s=delay_s)

    def _rewrite(self, exchange: Exchange, message: Any) -> bool:
        """Apply the restriction to a response; return whether it was changed."""
        if exchange.api == "ApiVersions":
            message.api_keys = [each for each in message.api_keys if self._narrow(each)]
            return True
        if exchange.api == "DescribeConfigs" and not self.restriction.describes:
            for result in message.results:
                result.configs = []
            return True
        if self.restriction.topic_configs and exchange.api in ("DescribeConfigs", "CreateTopics"):
            unknown = self._unknown(message)
            for one in getattr(message, "results", None) or message.topics:
                one.configs = [config for config in one.configs or () if config not in unknown]
            return bool(unknown)
        if not self.restriction.topic_ids:
            return _without_topic_ids(message)
        return False

    def _narrow(self, each: Any) -> bool:
        name = APIS[each.api_key].name if each.api_key in APIS else ""
        served = self.restriction.range_of(name, each.min_version, each.max_version)
        if served:
            self._served[each.api_key] = each.min_version, each.max_version = served
        return served is not None

    def ended(self, connection: ProxiedConnection) -> bytes | None:
        return None


def make_topics(restriction: Restriction, target: Target) -> None:
    """Create the topics that exist before a run, those of `names_of`. Errors: WireError."""
    names = names_of(restriction)
    if not names:
        return
    topics = [CreateTopicsRequest.CreatableTopic(name=one, num_partitions=3, replication_factor=1) for one in names]
    with Wire.connect(target.nodes[0].host, target.nodes[0].port) as wire:
        wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000))


def names_of(restriction: Restriction) -> list[str]:
    """The names of the topics that exist before a run, for the option `--topics`."""
    return [f"{PREFIX}{number}" for number in range(restriction.topics)]


def _without_topic_ids(message: Any) -> bool:
    found = [one for one in structures(message) if hasattr(one, "topic_id")]
    for one in found:
        one.topic_id = NO_UUID
    return bool(found)


RESTRICTIONS = {
    "toy": Restriction("five APIs in old versions; topics come by auto-creation, with four partitions", only=TOY,
                       config={"auto.create.topics.enable": "true", "num.partitions": "4"}),
    "toy-with-topics": Restriction("the same without auto-creation: topics are given by --topics", only=TOY,
                                   config={"auto.create.topics.enable": "false"}, topics=80),
    "bare": Restriction("all APIs; nothing is known but the address"),
    "oldest": Restriction("every API in its lowest version alone", oldest=True, versions={"Produce": (3, MOST)}),
    "newest": Restriction("every API in its highest version alone", newest=True),
    "kafka-1.0": Restriction("Produce, Fetch and Metadata as of Kafka 1.0, and groups without ids for members", versions={
        "Produce": (0, 5), "Fetch": (0, 6), "Metadata": (0, 5), "ListOffsets": (0, 2), "JoinGroup": (0, 2),
        "SyncGroup": (0, 1), "Heartbeat": (0, 1), "LeaveGroup": (0, 1), "OffsetCommit": (0, 3), "OffsetFetch": (0, 3),
        "FindCoordinator": (0, 1), "ApiVersions": (0, 1), "CreateTopics": (0, 2), "InitProducerId": (0, 0),
        "AddPartitionsToTxn": (0, 0), "AddOffsetsToTxn": (0, 0), "EndTxn": (0, 0), "TxnOffsetCommit": (0, 0),
        "DeleteTopics": (0, 1), "DescribeGroups": (0, 1), "ListGroups": (0, 1), "DescribeConfigs": (0, 1),
    }, without=f"{NEW_GROUPS} {SHARE} OffsetForLeaderEpoch IncrementalAlterConfigs ElectLeaders DescribeProducers "
               "DescribeTransactions ListTransactions OffsetDelete DescribeCluster DescribeTopicPartitions"),
    "old-producers": Restriction("transactions of today, and a Produce that cannot take part in them without being informed",
                                 versions={"Produce": (3, 5), "Metadata": (0, 5)}),
    "no-groups": Restriction("producing and consuming alone",
                             without=f"FindCoordinator {CLASSIC} {COMMITTED} {NEW_GROUPS} {GROUP_ADMIN} {SHARE} {TRANSACTIONS}"),
    "no-new-groups": Restriction("classic groups alone", without=f"{NEW_GROUPS} {SHARE}"),
    "no-classic-groups": Restriction("new groups alone", without=CLASSIC),
    "no-group-admin": Restriction("groups that no tool sees", without=GROUP_ADMIN),
    "no-offsets": Restriction("groups that commit nothing", without=f"{COMMITTED} AddOffsetsToTxn TxnOffsetCommit"),
    "no-transactions": Restriction("idempotent producers, and no transactions", without=TRANSACTIONS),
    "no-producer-ids": Restriction("no idempotent producers", without=f"InitProducerId {TRANSACTIONS}"),
    "no-descriptions": Restriction("transactions that no tool sees",
                                   without="DescribeTransactions ListTransactions DescribeProducers"),
    "no-admin": Restriction("topics come by auto-creation, and nothing is administered", without=ADMIN,
                            config={"num.partitions": "4"}),
    "no-list-offsets": Restriction("no offsets by timestamp", without="ListOffsets"),
    "no-describe-configs": Restriction("configurations cannot be read", without="DescribeConfigs"),
    "no-delete-records": Restriction("logs that nothing shortens", without="DeleteRecords"),
    "no-epochs": Restriction("no history of leader epochs", without="OffsetForLeaderEpoch"),
    "no-topic-ids": Restriction("topics without ids", topic_ids=False, without=f"{NEW_GROUPS} {SHARE}"),
    "silent-configs": Restriction("DescribeConfigs lists nothing", describes=False, breaks="BAS-12 CFG-01"),
    "slow": Restriction("each answer comes 300 ms later", delay_s=0.3),
    "other-defaults": Restriction("other defaults than Kafka's", config={
        "auto.create.topics.enable": "false", "num.partitions": "3", "group.initial.rebalance.delay.ms": "3000",
        "compression.type": "lz4", "log.message.timestamp.type": "LogAppendTime", "message.max.bytes": "262144",
        "log.retention.ms": "3600000", "group.min.session.timeout.ms": "10000", "max.incremental.fetch.session.cache.slots": "16",
    }),
    "other-limits": Restriction("other limits than Kafka's", config={
        "connections.max.idle.ms": "6000", "fetch.max.bytes": "1048576", "group.consumer.assignors": "range,uniform",
        "log.cleanup.policy": "compact,delete", "log.message.timestamp.after.max.ms": "600000",
        "log.message.timestamp.before.max.ms": "86400000", "log.roll.hours": "1", "quota.window.num": "2",
        "transaction.partition.verification.enable": "false", "unclean.leader.election.enable": "true",
    }),
    "few-topic-configs": Restriction("ten configurations of topics, as klite has them", topic_configs=FEW_TOPIC_CONFIGS,
                                     hooks=True, breaks="CFG-01"),
    "no-deletion": Restriction("topics that are never deleted", config={"delete.topic.enable": "false"}),
    "no-admin-with-hooks": Restriction("restarts and configurations, and no administration", without=ADMIN, hooks=True),
}  # fmt: skip
"""Name -> a correct broker that serves less."""
