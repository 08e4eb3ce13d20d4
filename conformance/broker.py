"""The broker under judgement, as a requirement's test sees it: through the wire only.

Three kinds of methods: *requests* (`connect`, `call`: `conversation.py`), *helpers* (`topic`, `end_offset`, `append`,
`fetch`: here) and *judgements* (`expect`, `expect_error`, `tolerate`, `skip`, `case`: `observations.py`). Every request and
response is recorded as evidence, every judgement as an observation.

The helpers follow the target's profile (`conformance.target_profile`): its versions, its message format, its way to create
topics. A helper that the target cannot support leaves the requirement *not judged*, with the reason; no test needs to check
first. A helper that fails names the basic requirement about its step (`built_on`): where that requirement fails too, the
tested one is *blocked* by it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Unpack
from uuid import UUID

from conformance import batches as stored
from conformance.answers import AnswerParts, asked_for, error_name, message_of, only
from conformance.batches import MAGIC_AT, in_order, is_empty, next_offset, without_rest
from conformance.conversation import Conversation
from conformance.given_topics import found_topic, skip_unknown_configs
from conformance.observations import READY_WITHIN_S
from conformance.readiness import EARLIEST, await_everywhere, error_of_leader
from conformance.results import Lack
from conformance.steps import built_on, refused
from conformance.target_profile import NEWEST_FORMAT
from conformance.wire import BrokerConnection, Failed, NoAnswer
from linearizability.client.requests import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchParams,
    ProduceParams,
    Topic,
    delete_records_request,
    fetch_request,
    list_offsets_request,
    new_topic,
    produce_request,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_UUID

PLACEMENTS = 25
"""The most topics that `topic` creates until one broker leads all partitions of one of them."""
LATE_S = 1.0
"""How long fetches below the high watermark may give no records: clients ask again."""
RESTARTED_WITHIN_S = 60.0
"""How long a restarted node may take to lead its partitions again: it may have a thousand of them to recover."""
METADATA_WITH_EPOCHS = 7
"""The first version of Metadata that has leader epochs (KIP-320)."""
FIRST_WITH_BATCHES = 3
"""The first version of Produce that carries record batches."""
LATEST, MAX_TIMESTAMP = -1, -3
"""Special timestamps of ListOffsets."""
LONGEST_LOG_BYTES = 64 << 20
"""The most bytes that `log` reads from one partition: more than the suite ever writes into one."""
BROKER_RESOURCE, TOPIC_RESOURCE = 4, 2
"""Resource types of DescribeConfigs."""

RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Errors of a broker that is not ready yet; the helpers repeat the request on them."""


class Broker(Conversation):
    """One requirement's view of the target: topics, leaders, coordinators and records."""

    # ---- topics

    @built_on("BAS-02")
    def topic(
        self,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
        name: str = "",
    ) -> Topic:
        """Create a topic with an unused name, and wait for its leaders. One broker leads all partitions of an unreplicated
        topic.

        Unless `configs` overrides it, retention.ms is -1 where that keeps records: targets that the suite starts delete expired
        records several times a second, and records with old timestamps would vanish during the test. Where the broker's defaults
        are not Kafka's, the topic is created with Kafka's.
        """
        profile = self.subject.profile
        if profile.topics_by != "CreateTopics":
            return found_topic(self, partitions, configs or {}, replication_factor, name)
        if configs and not profile.topic_configs:
            self.skip(f"needs a topic with {', '.join(configs)}; the target makes none with configurations", Lack.API)
        given = profile.retained | profile.pinned | dict(configs or {}) if profile.topic_configs else {}
        gathered = partitions > 1 and replication_factor == 1 and self.subject.nodes > 1
        placed = self._on_one_broker(partitions) if gathered else None
        further = 0 if name or partitions >= self.subject.never_gathered else PLACEMENTS - 1

        def new() -> Topic:
            return self._new_topic(
                name or self.unused_name(),
                partitions,
                configs=given,
                replication_factor=replication_factor,
                placed=placed,
            )

        topic = new()
        while gathered and not self._one_leads(topic.name):
            if not further:
                self.scattered.add(topic.name)
                if not name:
                    self.subject.never_gathered = min(self.subject.never_gathered, partitions)
                break
            topic, further = new(), further - 1
        return topic

    def _new_topic(self, name: str, partitions: int, **options: Any) -> Topic:
        """Create a topic by CreateTopics, which must succeed, and wait for its leaders."""
        made = self._made(name, partitions, **options)
        if made.error_code != ErrorCode.NONE:
            skip_unknown_configs(self, made.error_code, options["configs"])
            raise Failed(f"a topic could not be made: {error_name(made.error_code)} {message_of(made)}")
        return self.await_topic(name) if partitions == 1 else self._await_partitions(name, partitions)

    def _one_leads(self, name: str) -> bool:
        """Whether one broker leads all partitions of a topic."""
        return len({partition.leader_id for partition in self.describe_topic(name).partitions}) == 1

    def _made(self, name: str, partitions: int, *, replication_factor: int, **options: Any) -> Any:
        """The result of CreateTopics, repeated while a busy machine has a broker fenced, or ZooKeeper still has a deleted
        topic's name."""

        def made() -> Any:
            found = self.create_topic(name, partitions, replication_factor=replication_factor, **options)
            fenced = replication_factor == 1 and found.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            taken = found.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and not self.by_kraft()
            return None if fenced or taken else found

        return self.eventually(made, f"CreateTopics finds one broker for {name}")

    def _on_one_broker(self, partitions: int) -> list[list[int]] | None:
        """A replica assignment that puts all partitions on one broker; None where the target ignores assignments."""
        if not self.subject.profile.places:
            return None
        brokers = self.metadata([]).brokers
        return [[brokers[0].node_id]] * partitions if brokers else None

    def unused_name(self, stem: str = "") -> str:
        """A name for a topic, group or transactional id that was never used."""
        return f"tg-{(stem or self.requirement.id).lower()}-{uuid.uuid4().hex[:10]}"

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
        version: int | None = None,
        validate_only: bool = False,
        placed: Sequence[Sequence[int]] | None = None,
    ) -> Any:
        """Send CreateTopics for one topic and return its result, also an error. `placed` are the replicas of each partition."""
        topic = new_topic(name, partitions, configs=configs, replication_factor=replication_factor, placed=placed)
        request = CreateTopicsRequest(
            topics=[topic],
            timeout_ms=10_000,
            validate_only=validate_only,
        )
        self.subject.topics.append(name)
        return only(self.call(request, version).topics, f"result for topic {name}")

    def await_topic(self, name: str, partitions: int = 1, *, within_s: float = READY_WITHIN_S) -> Topic:
        """Wait until each partition of the topic has a leader that serves it."""

        def led() -> Topic | None:
            found = self.describe_topic(name)
            led = [p for p in found.partitions if p.error_code == ErrorCode.NONE and p.leader_id >= 0]
            if found.error_code == ErrorCode.NONE and len(led) >= partitions:
                return Topic(name, found.topic_id, len(found.partitions))
            return None

        topic = self.eventually(led, f"topic {name} has leaders for its {partitions} partitions", within_s=within_s)
        self._expect_own_id(topic)
        for partition in range(topic.partitions):
            self.eventually(
                lambda partition=partition: error_of_leader(self, topic, partition) not in RETRIABLE,
                f"the leader of {name}-{partition} serves it",
                within_s=within_s,
            )
        if self.subject.nodes > 1:
            await_everywhere(self, topic)
        return topic

    def restart_node(self, node: int) -> None:
        """Close all connections, then restart a node (needs the hook `restart`)."""
        for connection in self._by_address.values():
            connection.close()
        self.target.restart(node)

    @built_on("TOP-13")
    def _await_partitions(self, name: str, partitions: int) -> Topic:
        return self.await_topic(name, partitions)

    @built_on("MET-09")
    def _expect_own_id(self, topic: Topic) -> None:
        """Fail where another topic of this run has the same id. Accepts a target without topic ids."""
        if topic.id == NO_UUID:
            return
        with self.subject.lock:
            owner = self.subject.topic_ids.setdefault(topic.id, topic.name)
        if owner != topic.name:
            raise Failed(f"topics {owner} and {topic.name} have the same id {topic.id}")

    @built_on("BAS-02")
    def describe_topic(self, name: str) -> Any:
        """The topic's entry of Metadata, asked without auto-creation. Ignores entries of other topics, which MET judges."""
        version = self.version_for(MetadataRequest)
        topics = self.metadata([MetadataRequest.MetadataRequestTopic(name=name)], version=version).topics
        found = only([one for one in topics if one.name == name], f"entry for topic {name}")
        numbers = [each.partition_index for each in found.partitions]
        if len({*numbers}) < len(numbers):
            raise Failed(f"Metadata lists partitions of {name} twice: {sorted(numbers)}")
        return found

    def leader_id(self, topic: Topic) -> int:
        """The node that leads partition 0."""
        return AnswerParts({one.partition_index: one for one in self.describe_topic(topic.name).partitions})[
            0
        ].leader_id

    def leader(self, topic: Topic, partition: int = 0) -> tuple[str, int]:
        """The address of the partition's leader. Without a leader: that of another partition's leader, else the default
        address."""
        if self.subject.nodes == 1:
            return self.address
        named = MetadataRequest.MetadataRequestTopic(
            name=topic.name or None, topic_id=NO_UUID if topic.name else topic.id
        )
        metadata = self.metadata([named])
        partitions = [one for found in metadata.topics for one in found.partitions]
        partitions.sort(key=lambda one: one.partition_index != partition)
        brokers = {one.node_id: (one.host, one.port) for one in metadata.brokers}
        leading = [brokers[one.leader_id] for one in partitions if one.leader_id in brokers]
        return leading[0] if leading else self.address

    def id_of(self, topic: Topic) -> UUID:
        """The topic's id. Skips where the target reports none (before Metadata v10 no topic has one)."""
        if topic.id == NO_UUID:
            self.skip("needs topic ids, and the target reports none", Lack.API)
        return topic.id

    def leader_epoch(self, topic: Topic, partition: int = 0) -> int:
        """The partition's leader epoch, from Metadata. Skips below Metadata v7, which introduced the field."""
        if (version := self.version_for(MetadataRequest)) < METADATA_WITH_EPOCHS:
            self.skip(f"needs leader epochs, which Metadata v{version} does not have", Lack.API)
        found = self.describe_topic(topic.name)
        return AnswerParts({p.partition_index: p.leader_epoch for p in found.partitions})[partition]

    @built_on("ACK-17")
    def restart_leader(self, topic: Topic, partition: int = 0) -> int:
        """Restart the node that leads a partition (needs the hook `restart`), wait for a later leader epoch, and return it."""
        if not self.by_kraft():
            self.skip("with ZooKeeper the restart of a broker that is alone begins no later leader epoch")
        before = AnswerParts({p.partition_index: p for p in self.describe_topic(topic.name).partitions})[partition]
        self.restart_node(before.leader_id)

        def led() -> int | None:
            epoch = self.leader_epoch(topic, partition)
            return epoch if epoch > before.leader_epoch else None

        self.await_topic(topic.name, topic.partitions, within_s=RESTARTED_WITHIN_S)
        try:
            return self.eventually(led, f"{topic.name}-{partition} is led in an epoch above {before.leader_epoch}")
        except NoAnswer:
            self.skip(f"needs a later leader epoch after a restart; the target stays in epoch {before.leader_epoch}")

    def internal_topic(self, name: str) -> Topic:
        """A topic that only the broker writes to. Skips where the target has none."""
        try:
            return self.await_topic(name)
        except NoAnswer:
            self.skip(f"needs the internal topic {name}, which the target does not have")

    def kill_leader(self, topic: Topic, *, dead_s: float) -> None:
        """Kill the leader of partition 0 (needs the hooks `kill` and `restart`), restart it after `dead_s` seconds, and wait
        until every partition has a leader."""
        leader = self.leader_id(topic)
        for connection in self._by_address.values():
            connection.close()
        self.target.kill(leader)
        time.sleep(dead_s)
        self.target.restart(leader)
        self.await_topic(topic.name, topic.partitions, within_s=RESTARTED_WITHIN_S)

    # ---- records

    @built_on("BAS-03")
    def produce(
        self,
        topic: Topic,
        records: bytes | None,
        *,
        partition: int = 0,
        version: int | None = None,
        to: BrokerConnection | None = None,
        **params: Unpack[ProduceParams],
    ) -> Any:
        """Produce to one partition, and return the partition's result, also an error."""
        version = self.version_for(ProduceRequest, version)
        if version < FIRST_WITH_BATCHES and records and records[MAGIC_AT] == NEWEST_FORMAT:
            self.skip("needs record batches (message format 2), which the target's Produce does not carry", Lack.API)
        request = produce_request({(topic, partition): records}, **params)
        answer = self.call(request, version, to=to or self.connection(self.leader(topic, partition)))
        found = only(answer.responses, "topic in the answer")
        return asked_for(topic, partition, found, found.name, found.partition_responses)

    @built_on("BAS-03")
    def append(self, topic: Topic, records: bytes, *, partition: int = 0, **options: Any) -> int:
        """Produce records that the broker must accept, in the target's newest message format, and return the base offset."""
        newest = self.subject.profile.newest_format
        if newest < NEWEST_FORMAT:
            records = self._in_older_format(records, newest)
        result = self.produce(topic, records, partition=partition, **options)
        if result.error_code != ErrorCode.NONE:
            seen = f"a valid batch was refused with {error_name(result.error_code)} {message_of(result)}"
            raise refused(seen, result.error_code)
        return result.base_offset

    def _in_older_format(self, data: bytes, magic: int) -> bytes:
        """The records in an older message format. Skips for records with a producer id or headers, which that format lacks."""
        if stored.is_message_set(data):
            return data
        if any(one.producer_id >= 0 for one in stored.batches(data)) or any(r.headers for r in stored.records(data)):
            self.skip(f"needs record batches (message format 2); the target's newest format is {magic}", Lack.API)
        return stored.as_messages(data, magic)

    @built_on("BAS-04")
    def fetch(
        self,
        topic: Topic,
        offset: int,
        *,
        partition: int = 0,
        version: int | None = None,
        current_leader_epoch: int = -1,
        to: BrokerConnection | None = None,
        **params: Unpack[FetchParams],
    ) -> Any:
        """Fetch one partition without a session, and return the partition's result, also an error."""
        version = self.version_for(FetchRequest, version)
        request = fetch_request({(topic, partition): offset}, current_leader_epoch=current_leader_epoch, **params)
        answer = self.call(request, version, to=to or self.connection(self.leader(topic, partition)))
        if answer.error_code != ErrorCode.NONE:
            raise Failed(f"a fetch without a session was answered with {error_name(answer.error_code)}")
        found = only(answer.responses, "topic in the answer")
        return asked_for(topic, partition, found, found.topic, found.partitions)

    @built_on("BAS-04")
    def log(
        self,
        topic: Topic,
        *,
        partition: int = 0,
        offset: int = 0,
        isolation: int = READ_UNCOMMITTED,
        version: int | None = None,
    ) -> bytes:
        """All bytes of the partition from an offset to its end, at most LONGEST_LOG_BYTES. Errors: Failed."""
        collected, until = bytearray(), 0.0
        while len(collected) <= LONGEST_LOG_BYTES:
            part = self.fetch(topic, offset, partition=partition, isolation=isolation, version=version)
            if part.error_code != ErrorCode.NONE:
                raise Failed(f"a fetch at offset {offset} was answered with {error_name(part.error_code)}")
            data = bytes(part.records or b"")
            if not data or is_empty(data):
                end = part.last_stable_offset if isolation == READ_COMMITTED else part.high_watermark
                until = until or time.monotonic() + LATE_S
                if offset >= end or time.monotonic() >= until:
                    return bytes(collected)
                time.sleep(0.05)
                continue
            if not in_order(data) or next_offset(data) <= offset:
                raise Failed(f"the batches of a fetch at offset {offset} are not in the order of their offsets")
            collected += without_rest(data)
            offset, until = next_offset(data), 0.0
        raise Failed(f"fetches of one partition give more than {LONGEST_LOG_BYTES} bytes: the suite wrote less")

    @built_on("BAS-05")
    def offset_of(
        self,
        topic: Topic,
        timestamp: int,
        *,
        partition: int = 0,
        version: int | None = None,
        isolation: int = READ_UNCOMMITTED,
    ) -> Any:
        """Send ListOffsets for one partition, and return the partition's result, also an error."""
        version = self.version_for(ListOffsetsRequest, version)
        request = list_offsets_request({(topic.name, partition): timestamp}, isolation=isolation if version >= 2 else 0)
        answer = self.call(request, version, to=self.leader(topic, partition))
        return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")

    def end_offset(self, topic: Topic, partition: int = 0, *, isolation: int = READ_UNCOMMITTED) -> int:
        """The high watermark, or the last stable offset for read_committed: by ListOffsets, or by Fetch where the target's
        ListOffsets is wrong."""
        if self.subject.profile.ends_by_fetch:
            part = self.fetch(topic, 0, partition=partition, isolation=isolation)
            return part.last_stable_offset if isolation == READ_COMMITTED else part.high_watermark
        return self._bound(topic, LATEST, partition, isolation)

    def start_offset(self, topic: Topic, partition: int = 0) -> int:
        """The log start offset."""
        return self._bound(topic, EARLIEST, partition)

    def _bound(self, topic: Topic, timestamp: int, partition: int, isolation: int = READ_UNCOMMITTED) -> int:
        """The log's start or end, by ListOffsets. With several nodes, retries NOT_LEADER_OR_FOLLOWER: Metadata may name an
        earlier leader."""

        def asked() -> Any:
            return self.offset_of(topic, timestamp, partition=partition, isolation=isolation)

        found = asked()
        if found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self.subject.nodes > 1:
            with suppress(NoAnswer):
                found = self.eventually(
                    lambda: one if (one := asked()).error_code == ErrorCode.NONE else None,
                    f"{topic.name} has a leader that answers ListOffsets",
                )
        if found.error_code != ErrorCode.NONE:
            raise Failed(f"ListOffsets was answered with {error_name(found.error_code)}")
        return found.offset

    @built_on("BAS-13")
    def delete_records(self, topic: Topic, before: int, *, partition: int = 0) -> int:
        """Delete the records below an offset, which must succeed, and return the new log start offset."""
        answer = self.call(delete_records_request({(topic.name, partition): before}), to=self.leader(topic, partition))
        result = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
        if result.error_code != ErrorCode.NONE:
            raise Failed(f"DeleteRecords was answered with {error_name(result.error_code)}")
        known = ListOffsetsRequest.KEY in self.subject.api_versions
        start = self.start_offset(topic, partition) if known else result.low_watermark
        if start < before or result.low_watermark < before:
            failure = Failed(
                f"after DeleteRecords up to {before}, answered with {result.low_watermark}, the log starts at {start}"
            )
            moved = self.fetch(topic, start, partition=partition).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            failure.built_on = "LOF-01" if moved and start < before else ""
            raise failure
        return result.low_watermark

    @built_on("BAS-09")
    def producer_id(self, *, version: int | None = None) -> tuple[int, int]:
        """A fresh producer id and its epoch, for idempotent produce."""

        def given() -> tuple[int, int] | None:
            answer = self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), version)
            if answer.error_code in RETRIABLE:
                return None
            self.expect_error(answer.error_code, ErrorCode.NONE, what="InitProducerId")
            return answer.producer_id, answer.producer_epoch

        return self.eventually(given, "InitProducerId gives a producer id")

    @built_on("BAS-12")
    def broker_configs(self, names: Collection[str] | None) -> dict[str, str | None]:
        """The configurations in force on one broker, by DescribeConfigs; all of them for None. Each broker describes only
        itself."""
        brokers = self.metadata([]).brokers
        if not brokers:
            raise Failed("Metadata lists no broker")
        asked = next((one for one in brokers if (one.host, one.port) not in self.hurt), brokers[0])
        table = DescribeConfigsRequest.DescribeConfigsResource
        keys = None if names is None else list(names)
        resource = table(resource_type=BROKER_RESOURCE, resource_name=str(asked.node_id), configuration_keys=keys)
        to = (asked.host, asked.port) if self.subject.nodes > 1 else None
        answer = self.call(DescribeConfigsRequest(resources=[resource]), to=to)
        result = only(answer.results, f"result for broker {asked.node_id}")
        if result.error_code != ErrorCode.NONE:
            raise Failed(f"DescribeConfigs of broker {asked.node_id} was answered with {error_name(result.error_code)}")
        return AnswerParts({config.name: config.value for config in result.configs})
