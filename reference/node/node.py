"""One node: messages and ticks in, effects out.

Inputs are `receive` (a frame from a client's connection), `disconnected`, and `tick`; each comes with the time in
milliseconds. Outputs are effects, taken by `take_effects`, and what is on the disk. The same inputs on the same disk give
the same outputs: there is no clock, no chance but the seeded generator, and no waiting in here.

Frames are read in place: whatever a handler keeps after it returns, it has copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import UUID

from reference.controller import topics as topic_plans
from reference.controller.configs import Configuration
from reference.controller.image import Endpoint, MetadataImage
from reference.controller.metadata_log import MetadataLog
from reference.controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from reference.coordinator.group_coordinator import GroupCoordinator
from reference.node import groups, metadata
from reference.node.apis import API_VERSIONS, HANDLERS, advertised_apis, served_apis
from reference.node.effects import Close, ConnectionId, Effect, Respond
from reference.node.fetch import Serving
from reference.node.fetch_sessions import FetchSessions
from reference.node.peers import Peers
from reference.node.produce import ParkedProduce
from reference.node.replicas import Replicas
from reference.node.requests import Client, ParkingLot, Request
from reference.protocol.codec import CodecError, decode_from
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.frames import UnknownVersion, decode_request, encode_response
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.primitives import Buffer, NodeId, ProducerId, TimestampMs, TopicId, TopicName
from reference.protocol.records.batch import read_batches, records_of
from reference.protocol.schema import Message
from reference.replication.partition import Partition, Trace
from reference.storage.disk import Disk
from reference.storage.errors import StorageError
from reference.storage.log_manager import LogManager

PRODUCER_ID_BLOCK = 1000
"""Producer ids that the controller gives out at a time (KIP-730)."""

METADATA_VERSION = ("metadata.version", 30)
"""4.3-IV0, the level that Apache Kafka 4.3.1 finalizes."""

SUPPORTED_FEATURES = {"metadata.version": (7, 30)}

Chance = topic_plans.Chance


class SeededChance(Protocol):
    """The generator that the node is given: Python's `random.Random` fits."""

    def getrandbits(self, k: int, /) -> int: ...
    def randrange(self, start: int, stop: int = ..., /) -> int: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a node is and where its clients find it."""

    node: NodeId
    cluster_id: str
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


Logger = Callable[[str, str], None]
"""Takes a level (info, warning, error) and a sentence."""


class Node:
    """A broker and the controller of its own cluster of one."""

    def __init__(
        self,
        identity: Identity,
        properties: Mapping[str, str],
        disk: Disk,
        folder: Path,
        chance: SeededChance,
        now: TimestampMs,
        log: Logger = lambda level, message: None,
        tracer: Trace | None = None,
    ) -> None:
        """Start on a folder: load the logs, replay the metadata, register, take up the reign of each partition.

        Errors: StorageError, CorruptFile, CodecError and RecordsError for a folder that cannot be served.
        """
        self.id = identity.node
        self.cluster_id = identity.cluster_id
        self.folder = str(folder)
        self.chance = chance
        self.log = log
        self.image = MetadataImage()
        self.configuration = Configuration(identity.node, properties, self.image)
        self.advertised_apis = advertised_apis()
        self.supported_features = SUPPORTED_FEATURES
        self.produces: ParkingLot[ParkedProduce] = ParkingLot()
        self.fetches: ParkingLot[Serving] = ParkingLot()
        integer = self.configuration.integer
        self.fetch_sessions = FetchSessions(integer("max.incremental.fetch.session.cache.slots"), chance)
        self.fetch_max_bytes = integer("fetch.max.bytes")
        self.groups = GroupCoordinator(groups.settings_of(self), chance)
        self._served = served_apis()
        self._disk = disk
        self._effects: list[Effect] = []
        self.peers = Peers(identity.node, self._emit)
        self._clients: dict[ConnectionId, Client] = {}
        self._min_isrs: dict[TopicName, int] = {}
        self._producer_ids = range(0)
        self._epoch = 0
        self.logs = LogManager(disk, folder, log)
        self.logs.producer_expiration_ms = integer("producer.id.expiration.ms")
        self.logs.expiry_check_ms = integer("producer.id.expiration.check.interval.ms")
        self.logs.load(now)
        self.replicas = Replicas(
            identity.node, self.image, self.configuration, self.logs, now,
            given_up=self._on_given_up, failed=self.storage_failed, trace=tracer,
        )  # fmt: skip
        self.partitions = self.replicas.partitions
        self._metadata_log = MetadataLog(self.logs.metadata_log(now))
        self._start(identity, now)

    # ---- starting

    def _start(self, identity: Identity, now: TimestampMs) -> None:
        for _, record in self._metadata_log.replay(0):
            self.image.apply(record)
        folder = Path(self.folder) / "__cluster_metadata-0"
        self._epoch = read_quorum_state(self._disk, folder).leader_epoch + 1
        write_quorum_state(self._disk, folder, QuorumState(self.id, self._epoch, self.id))
        self._metadata_log.begin_epoch(self._epoch, self.id, [self.id], now)
        self.image.end_offset = self._metadata_log.log.log_end_offset
        records: list[Message] = []
        name, level = METADATA_VERSION
        if self.image.features.get(name) != level:
            records.append(FeatureLevelRecord(name=name, feature_level=level))
        records.append(self._registration(identity, self.image.end_offset + len(records)))
        records += self._new_reigns()
        self._append_metadata(records, now)
        self._reconcile(now)
        self._load_groups(now)

    def _registration(self, identity: Identity, offset: int) -> RegisterBrokerRecord:
        """This broker's registration; its epoch is the record's own offset, so every start has another."""
        return RegisterBrokerRecord(
            broker_id=self.id,
            incarnation_id=identity.incarnation,
            broker_epoch=offset,
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(
                    name=each.listener, host=each.host, port=each.port, security_protocol=0
                )
                for each in identity.endpoints
            ],
            features=[
                RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=identity.rack,
            fenced=False,
        )

    def _new_reigns(self) -> list[Message]:
        """After a restart this node leads its partitions in a new epoch: whoever held on to the old one is fenced."""
        return [
            PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=self.id)
            for topic in self.image.topics.values()
            for index, partition in topic.partitions.items()
            if self.id in partition.replicas
        ]

    def _load_groups(self, now: TimestampMs) -> None:
        """Replay what this node's partitions of `__consumer_offsets` hold."""
        for (topic, _), partition in sorted(self.partitions.items()):
            if topic == groups.OFFSETS_TOPIC:
                self._replay_group_log(partition, now)

    def _replay_group_log(self, partition: Partition, now: TimestampMs) -> None:
        log = partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, 1 << 20).records
            data = found if isinstance(found, bytes) else found.read()
            for batch in read_batches(data):
                offset = batch.header.next_offset
                if not batch.header.is_control:
                    for record in records_of(batch.data):
                        if record.key is not None:
                            self.groups.replay(record.key, record.value, now)
            if not isinstance(found, bytes):
                found.release()

    # ---- inputs

    def connected(self, connection: ConnectionId, host: str, listener: str) -> None:
        """A client has connected."""
        self._clients[connection] = Client(connection, host, listener)

    def disconnected(self, connection: ConnectionId) -> None:
        """A client's connection is gone: nothing more is sent to it."""
        self._clients.pop(connection, None)
        self.fetches.forget(connection)
        self.produces.forget(connection)

    def receive(self, connection: ConnectionId, frame: Buffer, now: TimestampMs) -> None:
        """Handle one request. A request that is none closes its connection (FRM-06 to FRM-09)."""
        client = self._clients[connection]
        try:
            header, form, view, position = decode_request(frame)
            key, version = header.request_api_key, header.request_api_version
            lowest, highest = self._served.get(key, (0, -1))
            if not lowest <= version <= highest:
                if key == API_VERSIONS:
                    self._refuse_api_versions(client, header.correlation_id)
                else:
                    self._effects.append(Close(connection, f"API {key} version {version} is not served"))
                return
            body, _ = decode_from(form.request, version, view, position)
        except UnknownVersion as error:
            if error.header is not None and error.header.request_api_key == API_VERSIONS:
                self._refuse_api_versions(client, error.header.correlation_id)
            else:
                self._effects.append(Close(connection, str(error)))
            return
        except CodecError as error:
            self._effects.append(Close(connection, str(error)))
            return
        request = Request(client, key, version, header.correlation_id, header.client_id)
        response = HANDLERS[key](self, request, body, now)
        if response is not None:
            self.respond(request, response)

    def _refuse_api_versions(self, client: Client, correlation_id: int) -> None:
        """A version too new is answered in version 0 with the list, so that the client can ask again (API-02, KIP-511)."""
        request = Request(client, API_VERSIONS, 0, correlation_id, None)
        self.respond(request, metadata.api_versions_response(self, 0, ErrorCode.UNSUPPORTED_VERSION))

    def tick(self, now: TimestampMs) -> None:
        """Do what is due: parked requests, groups, retention, flushes, checkpoints."""
        self.produces.tick(now)
        self.fetches.tick(now)
        self.peers.tick(now)
        self.groups.tick(now)
        groups.send_answers(self, now)
        self.replicas.tick(now)
        self.logs.tick(now)

    def next_deadline(self) -> TimestampMs:
        """When `tick` has something to do next."""
        times = [
            self.produces.next_deadline(),
            self.fetches.next_deadline(),
            self.peers.next_deadline(),
            self.groups.next_deadline(),
            self.logs.next_deadline(),
            *self.replicas.deadlines(),
        ]
        return min(time for time in times if time is not None)

    def answered(self, peer: NodeId, lane: str, frame: Buffer, now: TimestampMs) -> None:
        """Another node has answered what was sent to it on a lane; `frame` comes without its size."""
        self.peers.answered(peer, lane, frame, now)

    def unreachable(self, peer: NodeId, lane: str, now: TimestampMs) -> None:
        """The connection of a lane could not be made, or was lost: what was asked on it will not be answered."""
        self.peers.unreachable(peer, lane, now)

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """What is to be done since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def shut_down(self, now: TimestampMs) -> None:
        """A clean stop: everything flushed, checkpoints and snapshots written, the clean-shutdown file left."""
        self.logs.shut_down(self.replicas.high_watermarks(), now)

    # ---- answering

    def respond(self, request: Request, response: Message) -> None:
        """Answer a request; an answer to a connection that is gone lets go of its slices."""
        parts = encode_response(request.key, request.version, request.correlation_id, response)
        self._effects.append(Respond(request.client.connection, parts))

    def say_nothing(self, request: Request) -> None:
        """An acks=0 request went well: the connection goes on."""
        self._effects.append(Respond(request.client.connection, None))

    def close(self, request: Request, reason: str) -> None:
        """Close the request's connection without an answer."""
        self._effects.append(Close(request.client.connection, reason))

    # ---- what handlers ask

    def partition(self, topic: TopicName, index: int) -> Partition:
        """This node's replica. Errors: KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER for another node's."""
        found = self.partitions.get((topic, index))
        if found is not None:
            return found
        if self.image.partition(topic, index) is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    def leads(self, partition: Partition) -> bool:
        """Whether the replica is still there and leads."""
        return self.partitions.get((partition.topic, partition.index)) is partition and partition.is_leader

    def topic_name(self, topic_id: TopicId) -> TopicName | None:
        topic = self.image.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def topic_id(self, name: TopicName) -> TopicId:
        topic = self.image.topics.get(name)
        return topic.id if topic is not None else UUID(int=0)

    def min_isr(self, topic: TopicName) -> int:
        """The topic's min.insync.replicas."""
        found = self._min_isrs.get(topic)
        if found is None:
            found = self.configuration.topic(topic, "min.insync.replicas")
            assert isinstance(found, int)
            self._min_isrs[topic] = found
        return found

    def is_alive(self, broker: NodeId) -> bool:
        found = self.image.brokers.get(broker)
        return found is not None and not found.fenced

    def controller_for_clients(self) -> NodeId:
        """Whom clients are told to be the controller: a live broker, which forwards (KIP-500)."""
        return self.id

    def endpoint_of(self, broker: NodeId, listener: str) -> Endpoint | None:
        found = self.image.brokers.get(broker)
        if found is None or found.fenced:
            return None
        return next((each for each in found.endpoints if each.listener == listener), None)

    def authorized_operations(self, resource: str) -> int:
        """The bit field of operations a client may do: all that the resource has, for there is no authorizer."""
        return {"topic": 0b0000_1101_1111_1000, "cluster": 0b0001_1111_1111_1000_0000 >> 4 & 0xFFFF}[resource]

    def disk_space(self) -> tuple[int, int]:
        """Bytes of the disk and bytes still free; -1 where the disk does not say."""
        return self._disk.space(Path(self.folder))

    # ---- after an append

    def on_append(self, partition: Partition, now: TimestampMs) -> None:
        """Wake who waits for this partition: fetches for its records, produces for its high watermark."""
        key = (partition.topic, partition.index)
        self.fetches.wake(key, now)
        self.produces.wake(key, now)

    def storage_failed(self, name: str, error: Exception) -> None:
        """Say why a write or read was refused; clients get KAFKA_STORAGE_ERROR."""
        self.log("error", f"{name}: {error}")

    # ---- metadata

    def plan_topic(self, topic: CreateTopicsRequest.CreatableTopic) -> topic_plans.Created:
        """Plan a new topic with this broker's defaults. Errors: as `topics.create_topic`."""
        return topic_plans.create_topic(
            self.image,
            topic,
            default_partitions=self.configuration.integer("num.partitions"),
            default_replication=self.configuration.integer("default.replication.factor"),
            chance=self.chance,
        )

    def create_topic(self, topic: CreateTopicsRequest.CreatableTopic, now: TimestampMs, *, quietly: bool) -> None:
        """Create a topic that nobody asked for by CreateTopics; with `quietly` a refusal is only logged."""
        try:
            self.commit_metadata(self.plan_topic(topic).records, now)
        except KafkaError as error:
            if not quietly:
                raise
            self.log("warning", f"topic {topic.name} was not created: {error}")

    def create_internal_topic(self, name: TopicName, now: TimestampMs) -> None:
        """Create a coordinator's topic with the settings that Kafka gives it."""
        if name != groups.OFFSETS_TOPIC:
            return
        integer = self.configuration.integer
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(integer("offsets.topic.segment.bytes")),
        }
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=integer("offsets.topic.num.partitions"),
            replication_factor=integer("offsets.topic.replication.factor"),
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        self.create_topic(topic, now, quietly=True)

    def next_producer_id(self, now: TimestampMs) -> ProducerId:
        """A producer id that no session of this cluster had before (IDM-01). Errors: KafkaError when no block can be had."""
        if not self._producer_ids:
            first = self.image.next_producer_id
            block = ProducerIdsRecord(broker_id=self.id, broker_epoch=-1, next_producer_id=first + PRODUCER_ID_BLOCK)
            self.commit_metadata([block], now)
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return id

    def commit_metadata(self, records: Sequence[Message], now: TimestampMs) -> None:
        """Make a decision true: in the log, in the image, in the partitions.

        Errors: KafkaError KAFKA_STORAGE_ERROR when the metadata log cannot be written; nothing has then changed.
        """
        if records:
            self._append_metadata(records, now)
            self._reconcile(now)

    def _append_metadata(self, records: Sequence[Message], now: TimestampMs) -> None:
        try:
            self._metadata_log.append(records, self._epoch, now)
        except StorageError as error:
            self.storage_failed("__cluster_metadata-0", error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error
        for record in records:
            self.image.apply(record)
        self.image.end_offset = self._metadata_log.log.log_end_offset

    def _reconcile(self, now: TimestampMs) -> None:
        self._min_isrs.clear()
        self.replicas.reconcile(now)

    def _on_given_up(self, key: tuple[TopicName, int], now: TimestampMs) -> None:
        """A replica is no more: who waits for it is told."""
        self.fetches.wake(key, now)
        self.produces.wake(key, now)
        name, _ = key
        if name not in self.image.topics and groups.OFFSETS_TOPIC in self.image.topics:
            groups.forget_topic(self, name, now)
