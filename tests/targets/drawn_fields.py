"""The values of the fields in drawn requests, chosen by the fields' names: names of a few topics, groups and transactional ids,
small numbers, and wrong values. So most requests are about something that exists, and many are refused.

What a broker names for itself (topic ids, producer ids, member ids, sessions) is drawn by its place among those that it gave.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from conformance.batches import RECENT_MS, TRANSACTIONAL, batch, message_set
from linearizability.targets.wire import Wire
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Field, Message

ANSWERS_WITHIN_S = 30.0


@dataclass
class Side:
    """One cluster, and what it has named for itself, in the order in which it did."""

    addresses: Sequence[tuple[str, int]]
    given: dict[str, list[Any]] = field(default_factory=dict)
    """Kind of name -> the names that this cluster gave."""
    internal_ids: set[UUID] = field(default_factory=set)
    """The ids of the topics in which coordinators keep their state."""
    node: int = 0
    """Which of its brokers is asked."""
    login: bytes | None = None
    """The token by which a client authenticates (PLAIN)."""
    host: str = "127.0.0.1"
    """The address from which the client connects."""

    def __post_init__(self) -> None:
        self._wires = [self._connected(address) for address in self.addresses]

    def _connected(self, address: tuple[str, int]) -> Wire:
        connection = socket.create_connection(address, ANSWERS_WITHIN_S, (self.host, 0))
        wire = Wire(connection, ANSWERS_WITHIN_S)
        if self.login is not None:
            wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            wire.call(SaslAuthenticateRequest(auth_bytes=self.login), 2)
        return wire

    @property
    def wire(self) -> Wire:
        return self._wires[self.node]

    def place(self, kind: str, value: Any) -> str:
        known = self.given.setdefault(kind, [])
        if value not in known:
            known.append(value)
        return f"{kind} {known.index(value)}"

    def ask_again(self) -> None:
        """A new connection to the same broker."""
        self._wires[self.node].close()
        self._wires[self.node] = self._connected(self.addresses[self.node])

    def known(self, kind: str, place: int, otherwise: Any) -> Any:
        known = self.given.get(kind, [])
        return known[place % len(known)] if known else otherwise


Draw = Callable[[Side, Random], Any]


def among(*values: Any) -> Draw:
    return lambda side, rng: rng.choice(values)


def given(kind: str, otherwise: Any, *others: Any) -> Draw:
    def draw(side: Side, rng: Random) -> Any:
        is_given, place, other = rng.random() < 0.8, rng.randrange(1000), rng.choice([otherwise, *others])
        return side.known(kind, place, otherwise) if is_given else other

    return draw


NO_ONES_PRODUCER = 4711
"""A producer id that no broker gives out in so short a time."""
WRONG = {
    0: {"crc": 1}, 1: {"magic": 1}, 2: {"last_offset_delta": 5}, 3: {"count": 9}, 4: {"base_offset": 3},
    5: {"attributes": 0x20}, 6: {"length": 100}, 7: {"max_timestamp": 1}, 8: {"base_sequence": -1},
    9: {"producer_epoch": -1}, 10: {"partition_leader_epoch": 9}, 11: {"attributes": 7}, 12: {"attributes": 8},
}  # fmt: skip
"""Fields of a batch's header that are not as they should be. Of an impossible length Kafka refuses the other partitions, too."""


def drawn_records(side: Side, rng: Random) -> bytes | None:
    """A batch; seldom several, a damaged one, one of an old format, or none."""
    values = [b"v%d" % rng.randrange(10) for _ in range(rng.choice([1, 1, 2, 3]))]
    producer = given("producer", -1, NO_ONES_PRODUCER)(side, rng)
    epoch, sequence, of_producer = rng.choice([0, 0, 0, 1]), rng.randrange(4), rng.random() < 0.6
    transactional, codec = rng.random() < 0.4, rng.choice([0, 0, 0, 1, 2, 3, 4])
    how, timestamp = rng.randrange(30), RECENT_MS + rng.randrange(1000)
    header: dict[str, int] = {}
    if of_producer:
        header |= {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    if transactional:
        header["attributes"] = codec | TRANSACTIONAL
    wrong = WRONG.get(how, {})
    given_header: dict[str, Any] = header | wrong
    made = batch(*values, codec=codec, timestamp=timestamp, **given_header)
    match how:
        case 14:
            return b""
        case 15:
            return message_set(b"old", rng.choice([0, 1]), timestamp=timestamp)
        case 16:
            return made + made
        case 17:
            return made[: rng.randrange(len(made))]
    return made


NAMES = among(
    *["t0", "t1"] * 6, *["t2", "t3"] * 2, "nowhere", "bad name", "", "__consumer_offsets", "__transaction_state"
)
NUMBERS = among(0, 0, 0, 1, 2, -1, 9)
TOPIC_IDS = given("topic", UUID(int=5))
GROUPS = among("g0", "g1", "g2", "g3", "")
TRANSACTIONS = among("x0", "x1", "x2", "x3", "")
MEMBERS = given("member", "", "m1", "")
EPOCHS = among(0, 0, 0, 1, 2, -1, 9)
CONFIGS = among(
    "retention.ms", "cleanup.policy", "min.insync.replicas", "max.message.bytes", "segment.bytes", "compression.type",
    "message.timestamp.type", "no.such.config", "log.retention.ms", "unclean.leader.election.enable", "retention.bytes",
    "max.compaction.lag.ms", "message.timestamp.before.max.ms", "log.cleaner.threads", "num.io.threads", "",
    "consumer.session.timeout.ms", "follower.replication.throttled.replicas", "compression.gzip.level", "flush.messages",
    "index.interval.bytes", "min.cleanable.dirty.ratio", "preallocate", "delete.retention.ms", "local.retention.ms",
    "remote.storage.enable", "background.threads", "log.segment.bytes", "message.format.version", "segment.ms",
)  # fmt: skip
VALUES = among(
    "1", "2", "-1", "-2", "0", "abc", "", None, "compact", "delete", "compact,delete", "gzip", "producer", "LogAppendTime",
    "CreateTime", "true", "false", "1048576", "9000000000", "0.5", "0:1,1:1", "*", "45000",
)  # fmt: skip

BY_NAME: Mapping[str, Draw] = {
    "CreatePartitions.topics.name": among(*["t0", "t1"] * 2, "nowhere", *["__consumer_offsets", "__transaction_state"] * 2),
    "DescribeTopicPartitions.topics.name": among("t0", "t0", "t1", "t1", "t2", "nowhere", "bad name", "__consumer_offsets"),
    "UnregisterBroker.broker_id": among(9, -1), "voter_id": among(9, -1), "voter_directory_id": among(NO_UUID, UUID(int=5)),
    "AddRaftVoter.listeners.host": among("h", "1.2.3.4"),  # an empty one ends Kafka: findings/hostless_listener
    "AddRaftVoter.timeout_ms": among(0, 100), "AddRaftVoter.listeners.name": among("CONTROLLER", "controller", "OTHER"),
    "port": among(1, 0),
    "ConsumerGroupHeartbeat.member_id": given("member", "m1", "", "a long id" * 30),
    "ConsumerGroupHeartbeat.member_epoch": among(0, 0, 0, 1, 1, 2, 3, -1, -2, -3, 1 << 30),
    "ConsumerGroupHeartbeat.rebalance_timeout_ms": among(300000, 300000, 300000, -1, 0),
    "ConsumerGroupHeartbeat.subscribed_topic_names": among("t0", "t0", "t1", "nowhere", ""),
    "ConsumerGroupHeartbeat.subscribed_topic_regex": among(None, None, None, "t.*", "t[01]", "(", ""),
    "ConsumerGroupHeartbeat.server_assignor": among(None, None, "range", "uniform", "nonsense", ""),
    "name": NAMES, "topic": NAMES, "topic_name": NAMES, "topic_names": NAMES, "topic_id": TOPIC_IDS, "group_id": GROUPS,
    "groups_names": GROUPS, "group_ids": GROUPS, "transactional_id": TRANSACTIONS, "transactional_ids": TRANSACTIONS,
    "v3_and_below_transactional_id": TRANSACTIONS, "member_id": MEMBERS, "group_instance_id": among(None, None, None, "i0"),
    "instance_id": among(None, None, "i0"), "partition": NUMBERS, "partition_index": NUMBERS, "index": NUMBERS,
    "partitions": NUMBERS, "partition_indexes": NUMBERS, "producer_id": given("producer", -1, NO_ONES_PRODUCER),
    "v3_and_below_producer_id": given("producer", -1, NO_ONES_PRODUCER), "producer_epoch": among(0, 0, 0, 1, 2, -1),
    "v3_and_below_producer_epoch": among(0, 0, 0, 1, 2, -1), "timeout_ms": among(20000), "acks": among(-1, -1, 1, 1, 2),
    "records": drawn_records, "max_wait_ms": among(0, 20), "min_bytes": among(0, 1),
    "max_bytes": among(1 << 20, 1 << 20, 100, 0), "partition_max_bytes": among(1 << 20, 1 << 20, 80, 0),
    "isolation_level": among(0, 1), "replica_id": among(-1, -1, -1, -1, -1, -2, 1, 3), "replica_epoch": among(-1),
    "session_id": given("session", 0, 0, 99), "session_epoch": among(-1, -1, 0, 0, 1, 2), "rack_id": among("", "", "r"),
    "current_leader_epoch": among(-1, -1, -1, 0, 0, 1), "leader_epoch": among(0, 0, 1, -1, -2),
    "fetch_offset": among(0, 0, 1, 2, 3, 5, 99, -1), "last_fetched_epoch": among(-1, -1, 0, 1),
    "log_start_offset": among(-1, 0), "cluster_id": among(None), "high_watermark": among(-1, 1 << 62),
    "timestamp": among(-1, -2, -3, -4, -5, -6, 0, RECENT_MS, RECENT_MS + 500, RECENT_MS + 99999999),
    "generation_id_or_member_epoch": among(-1, -1, 1, 1, 2, 0, 3), "generation_id": among(1, 1, 2, 0, -1, 3),
    "member_epoch": among(0, 0, 1, 2, -1, -2), "retention_time_ms": among(-1), "committed_offset": among(0, 1, 5, -1, -2),
    "committed_leader_epoch": among(-1, 0, 3), "commit_timestamp": among(-1),
    "committed_metadata": among("", "some", None), "require_stable": among(True, False),
    "key": among("g0", "x0", "g1", "x1", "", "g0:AAAAAAAAAAAAAAAAAAAAAA:0"), "key_type": among(0, 0, 1, 1, 2, 5),
    "coordinator_keys": among("g0", "x0", ""), "session_timeout_ms": among(300000, 300000, 300000, 5),
    "rebalance_timeout_ms": among(400), "protocol_type": among("consumer", "consumer", "consumer", "connect", ""),
    "protocol_name": among(None, "range", "range", "else"), "metadata": among(b"", b"meta"), "assignment": among(b"", b"as"),
    "reason": among(None, "why"), "states_filter": among("Stable", "Empty", "empty", "Dead", "nonsense", ""),
    "types_filter": among("classic", "consumer", "Consumer", "share", "nonsense"),
    "num_partitions": among(1, 1, 2, 3, -1, 0, -2), "replication_factor": among(1, 1, 1, -1, 2, 0),
    "broker_ids": among(1, 1, 1, 2, -1), "configs.name": CONFIGS, "value": VALUES, "configuration_keys": CONFIGS,
    "validate_only": among(False, False, True), "offset": among(0, 1, 1, 2, -1, 99, -2),
    "transaction_timeout_ms": among(60000, 60000, 0, 999999999), "enable2_pc": among(False, False, False, True),
    "keep_prepared_txn": among(False, False, False, True), "committed": among(True, False),
    "transaction_result": among(True, False), "coordinator_epoch": among(0, 1, -1), "transaction_version": among(0, 1, 2),
    "verify_only": among(False, True), "resource_type_filter": among(1, 2, 3, 4, 5, 6, 7, 0, 99),
    "resource_type": among(2, 2, 2, 4, 8, 32, 3, 5, 0), "creations.resource_type": among(2, 3, 4, 5, 6, 7, 0),
    "creations.operation": among(2, 3, 4, 5, 8, 10, 12, 13),
    "resource_name_filter": among(None, "t0", "g0", "kafka-cluster", ""),
    "resource_name": among("t0", "t1", "1", "", "2", "g0", "nowhere", "abc", "kafka-cluster", "\u00b2", "9" * 5_000),
    "pattern_type_filter": among(1, 2, 3, 4, 0), "resource_pattern_type": among(3, 4, 3),
    "principal_filter": among(None, "User:a", "bad"), "principal": among("User:a", "User:*", "bad", "", "Group:x"),
    "host_filter": among(None, "*", "h"), "host": among("*", "1.2.3.4", "h", ""),
    "operation": among(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0), "permission_type": among(3, 2, 3, 0),
    "path": given("folder", "/nowhere", "relative", ""), "count": among(1, 2, 3, 4, 2, 3, 0, -1), "election_type": among(0, 0, 1, 2),
    "config_operation": among(0, 0, 0, 1, 2, 3), "replicas": among(1, 1, 1, 2),
    "entity_type": among("user", "client-id", "ip", "nonsense", ""),
    "entity_name": among("a", None, "b", "127.0.0.1", "not an ip", ""), "match_type": among(0, 1, 2, 3),
    "match": among("a", None, "b"), "strict": among(True, False), "remove": among(False, False, True),
    "ops.key": among(
        "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate",
        "nonsense",
    ),
    "ops.value": among(1e9, 2e9, -1.0, 0.0), "users.name": among("a", "b", ""), "deletions.name": among("a", "b", ""),
    "upsertions.name": among("a", "b", ""), "mechanism": among(1, 1, 2, 0, 3), "iterations": among(4096, 8192, 100, 20000),
    "salt": among(b"salt", b""), "salted_password": among(b"pw", b""),
    "feature": among("metadata.version", "group.version", "kraft.version", "nonsense"),
    "max_version_level": among(0, 1, 2, 30, 29, 99, -1), "upgrade_type": among(1, 2, 3, 0),
    "allow_downgrade": among(False, True), "allow_replication_factor_change": among(True, True, False), "endpoint_type": among(1, 1, 2, 3),
    "state_filters": among(
        "Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "PrepareCommit", "PrepareEpochFence", "Dead", "ongoing", "",
        "nonsense",
    ),
    "producer_id_filters": given("producer", 5), "duration_filter": among(-1, -1, -1, 0, -5, 1 << 40, (1 << 63) - 1),
    "transactional_id_pattern": among(
        None, None, "", "x.*", "x0", "0", "(", "x[01]", "(?i)X1", "^x2$", "x0|first", "\\Qx0\\E", "(?=x)x0", "x{1001}", "\\x30",
    ),
    "resource_types": among(2, 4, 8, 16, 32, 3),
    "response_partition_limit": among(2000, 1, 2, 0), "client_instance_id": among(UUID(int=5), NO_UUID),
    "subscription_id": among(0, 5), "compression_type": among(0, 1, 9), "groups": GROUPS,
    "components.entity_type": among("user", "client-id", "ip", "nonsense"),
    "owner_principal_type": among("User", "User", "", "x"),
    "owner_principal_name": among("", "", "alice", "a", None), "principal_type": among("User", "User", "User", "x", ""),
    "principal_name": among("a", "alice", "b", ""), "max_lifetime_ms": among(-1, -1, 0, 1200000, 3600000, 1 << 62, -5),
    "renew_period_ms": among(-1, 0, 1200000, 3600000, 1 << 62, -5),
    "expiry_time_period_ms": among(-1, 0, 1200000, 3600000, 1 << 62, -5), "hmac": given("hmac", b"", b"h"),
}  # fmt: skip
NEVER_EMPTY = {
    "partitions",
    "partition_data",
    "partition_indexes",
    "markers",
    "WriteTxnMarkers.markers.topics",
    "transactions",
}
"""Lists of partitions: brokers leave out topics without any. Kafka does not answer AddPartitionsToTxn without transactions."""
ALONE = {"WriteTxnMarkers.markers"}
"""Lists of one: of several markers Kafka 4.3.1 answers none, where the last one is of partitions that are not there."""
ONE_OF_EACH = {"AddPartitionsToTxn.transactions": ("transactional_id",)}
"""List -> fields in which its elements must differ: of two transactions with one id Kafka responds to the last only."""
ASKED_ABOUT = (
    "name", "topic", "topic_name", "topic_id", "partition", "partition_index", "index", "group_id", "transactional_id",
    "producer_id", "resource_type", "resource_name", "entity", "path", "member_id",
)  # fmt: skip
ABSENT = 0.15
"""How often a field that may be null is, or an array is empty."""
ABSENT_OF = {
    "assignments": 0.8, "CreatePartitions.topics.assignments": 0.9, "state_filters": 0.5, "producer_id_filters": 0.6,
    "DescribeLogDirs.topics": 0.5, "ConsumerGroupHeartbeat.topic_partitions": 0.6, "ConsumerGroupHeartbeat.subscribed_topic_names": 0.2,
}  # fmt: skip
"""The same for some fields, whose requests would otherwise mostly ask for nothing."""


Value = TypeVar("Value")


def _of(names: Mapping[str, Value], path: str) -> Value | None:
    """The entry of a field, by its path from the API (`CreatePartitions.topics.name`) or by a shorter end of the path."""
    while path not in names:
        _, is_longer, path = path.partition(".")
        if not is_longer:
            return None
    return names[path]


def drawn(table: type[Message], version: int, side: Side, rng: Random, path: str) -> Any:
    """A message; `path` is its API's name. The numbers that are drawn for it do not depend on the side."""
    values: dict[str, Any] = {}
    for each in table.FIELDS:
        if version in each.versions:
            values[each.name] = _drawn_field(each, version, side, rng, f"{path}.{each.name}")
    return table(**values)


def _drawn_field(each: Field, version: int, side: Side, rng: Random, path: str) -> Any:
    is_absent = rng.random() < (_of(ABSENT_OF, path) or ABSENT) and NEVER_EMPTY.isdisjoint((each.name, path))
    draw = _of(BY_NAME, path)
    if each.kind == "struct":
        return None if is_absent and version in each.nullable else drawn(each.element, version, side, rng, path)
    if each.kind == "array":
        if is_absent:
            return None if version in each.nullable and rng.random() < 0.7 else []
        count = 1 if path in ALONE else rng.choice([1, 1, 1, 2])
        if isinstance(each.element, type):
            elements = [drawn(each.element, version, side, rng, path) for _ in range(count)]
            return _distinct(elements, ONE_OF_EACH.get(path, ASKED_ABOUT))
        return _distinct([draw(side, rng) for _ in range(count)]) if draw is not None else []
    if draw is None:
        return True if each.kind == "bool" and rng.random() < 0.5 else each.default
    value = draw(side, rng)
    return each.default if value is None and version not in each.nullable else value


def _distinct(values: list[Any], by: Sequence[str] = ()) -> list[Any]:
    """One for each thing that is asked about: Kafka keeps requests by topic and partition, and so the last of two."""
    found: dict[Any, Any] = {}
    for value in values:
        named = [getattr(value, name) for name in by if hasattr(value, name)] if isinstance(value, Message) else value
        found.setdefault(repr(named), value)
    return list(found.values())
