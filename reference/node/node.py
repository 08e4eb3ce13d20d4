"""One node: messages and ticks in, effects out.

Inputs are `receive` (a frame from a connection), `disconnected`, `answered` and `unreachable` (of what was sent to other
nodes), and `tick`; each comes with the time in milliseconds. Outputs are effects, taken by `take_effects`, and what is on
the disk. The same inputs on the same disk give the same outputs: there is no clock, no chance but the seeded generator, and
no waiting in here.

A node is a broker, a controller, or both (process.roles). Each has a replica of the metadata log (`quorum`), whose committed
records make the one image (`replay`) that everything else acts by: as a broker it registers (`membership`), takes up its
partitions (`replicas`) and replicates them (`replication`); as a voter it may come to be the active controller (`controller`).
Requests come in at the `reception`; what only the active controller can answer goes to it, wherever it is
(`active_controller`).

Frames are read in place: whatever a handler keeps after it returns, it has copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from reference.controller import topics as topic_plans
from reference.controller.configs import Configuration
from reference.controller.image import Endpoint, MetadataImage
from reference.controller.quorum import Quorum
from reference.controller.quorum_settings import QuorumSettings
from reference.node.active_controller import CONTROLLER_TIMEOUT_MS, HEARTBEAT_LANE, ActiveController, Answered
from reference.node.apis import Api, apis_of
from reference.node.cleaning import set_up_cleaner
from reference.node.committed import AwaitingCommit
from reference.node.controller import SUPPORTED_FEATURES, Controller
from reference.node.directory_assignments import DirectoryAssignments
from reference.node.effects import Close, ConnectionId, Effect, Respond
from reference.node.fetch import Serving
from reference.node.fetch_sessions import FetchSessions
from reference.node.forwarding import Forwarding
from reference.node.groups import Groups
from reference.node.identity import Identity, registration
from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from reference.node.loggers import Loggers
from reference.node.membership import Membership, State
from reference.node.misfit import Misfit
from reference.node.moves import Moves
from reference.node.peers import Peers
from reference.node.produce import ParkedProduce
from reference.node.producer_ids import ProducerIds
from reference.node.properties import controller_listeners_of, is_broker, truncation_of
from reference.node.reception import Reception
from reference.node.release import BROKER, CONTROLLER
from reference.node.replay import Replay
from reference.node.replicas import Replicas
from reference.node.replication import Replication
from reference.node.requests import Client, ParkingLot, Request
from reference.node.topics import ParkedDeletion
from reference.node.transactional_offsets import verify_offsets
from reference.node.transactions import Transactions
from reference.node.verification import Verification
from reference.node.voters import QUORUM_FETCH_LANE, QUORUM_LANE, Address, voters_of
from reference.node.write_markers import AwaitedMarkers
from reference.protocol.codec import Part
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.frames import encode_response
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.primitives import Buffer, NodeId, TimestampMs, TopicId, TopicName
from reference.protocol.schema import Message
from reference.replication.fetcher import FetchSettings
from reference.replication.partition import Partition, Trace
from reference.replication.reign import Peer
from reference.storage.log_manager import LogManager

STEPS_TO_BE_UNFENCED = 2
"""A registration and a heartbeat, where the controller is this very node."""

METADATA_FETCHES = frozenset({1, 59})
"""Fetch and FetchSnapshot: the leader may hold them, and nothing else should wait behind."""

Chance = topic_plans.Chance


class SeededChance(Protocol):
    """The generator that the node is given: Python's `random.Random` fits."""

    def getrandbits(self, k: int, /) -> int: ...
    def randrange(self, start: int, stop: int = ..., /) -> int: ...


Logger = Callable[[str, str], None]
"""Takes a level (info, warning, error) and a sentence."""


class Node:
    """A broker, a controller, or both."""

    def __init__(
        self,
        identity: Identity,
        properties: Mapping[str, str],
        logs: LogManager,
        chance: SeededChance,
        now: TimestampMs,
        log: Logger = lambda level, message: None,
        tracer: Trace | None = None,
    ) -> None:
        """Start: load the logs, join the quorum; alone in it, register and take up each partition at once.

        Errors: StorageError, CorruptFile, CodecError and RecordsError for a directory that cannot be served; KafkaError
        where the disk refuses what a first start must write.
        """
        self.id = identity.node
        self.cluster_id = identity.cluster_id
        self.chance = chance
        self.loggers = Loggers()
        self.log: Logger = lambda level, text: log(level, text) if self.loggers.admits(level) else None
        self.image = MetadataImage()
        self.configuration = Configuration(identity.node, properties, self.image)
        self.supported_features = SUPPORTED_FEATURES
        self.produces: ParkingLot[ParkedProduce | AwaitingCommit | AwaitedMarkers | ParkedDeletion] = ParkingLot()
        self.fetches: ParkingLot[Serving] = ParkingLot()
        integer = self.configuration.integer
        self.fetch_sessions = FetchSessions(integer("max.incremental.fetch.session.cache.slots"), chance)
        self.fetch_max_bytes = integer("fetch.max.bytes")
        self.groups = Groups(self, tracer)
        self.transactions = Transactions(self, tracer)
        self.verification = Verification(self)
        self.groups.verify = partial(verify_offsets, self)
        self.apis = {kind: apis_of(kind) for kind in (BROKER, CONTROLLER)}
        self.controller_listeners = controller_listeners_of(properties)
        self._own_listener = properties.get("inter.broker.listener.name", "").upper()
        self._effects: list[Effect] = []
        self._reception = Reception(self, self._emit)
        self.producer_ids = ProducerIds(self)
        self._is_draining = False
        self._upkeep_deadline: TimestampMs | None = None
        """The earliest of `_upkeep_deadlines`; None while it has to be looked up."""
        self.has_begun_to_serve = False
        """Whether the replicas are what the metadata say, and requests are not held any more."""
        self.peers = Peers(identity.node, self._emit)
        self.voters = voters_of(properties, identity.node)
        self.is_broker = is_broker(properties)
        self.logs = logs
        logs.configure(integer("producer.id.expiration.ms"), integer("producer.id.expiration.check.interval.ms"))
        logs.load(now)
        self.replicas = Replicas(
            identity.node, self.image, self.configuration, self.logs, self, now, brokers=self.peer_of,
            truncation=truncation_of(properties), trace=tracer,
        )  # fmt: skip
        self.partitions = self.replicas.partitions
        for each in logs.directories:
            set_up_cleaner(each.cleaner, self.configuration, self.partitions, logs)
        self.replication = Replication(
            identity.node, self.partitions, self, FetchSettings.of(integer), integer("replica.lag.time.max.ms"), now
        )
        metadata_log = logs.metadata_log(now, is_only_copy=len(self.voters) == 1)
        self._replay = Replay(self, metadata_log, now)
        self.quorum = Quorum(
            identity.node, identity.cluster_id, QuorumSettings.of(integer, [*self.voters]), logs.metadata.disk,
            metadata_log, chance, now, directory=logs.metadata.id, say=log, trace=tracer,
        )  # fmt: skip
        self.controller = Controller(
            self.quorum,
            self.image,
            self.configuration,
            identity.cluster_id,
            identity.incarnation,
            self._replay.advance,
            tracer,
        )
        self.active_controller = ActiveController(self)
        self.forwarding = Forwarding(self.active_controller, self.respond, self.respond_raw)
        self._misfit = Misfit(log)
        self.moves = Moves(self)
        self._directories = DirectoryAssignments(self)
        self.membership = Membership(
            registration(identity, [each.id for each in logs.live], logs.last_broker_epoch),
            heartbeat_interval_ms=integer("broker.heartbeat.interval.ms"),
            directory_failure_timeout_ms=integer("log.dir.failure.timeout.ms"),
            applied=lambda: self.image.end_offset,
            ask=lambda body, answered, then: self.ask_controller(HEARTBEAT_LANE, body, answered, then),
            log=self.log,
            now=now,
        )
        self._start(now)

    def _start(self, now: TimestampMs) -> None:
        """Alone in the quorum a node registers, replays and is unfenced before anybody can ask it for anything."""
        self._drain(now)
        if self.is_broker and len(self.voters) == 1:
            for _ in range(STEPS_TO_BE_UNFENCED):
                self.membership.tick(now)
                self._drain(now)

    # ---- inputs

    def connected(self, connection: ConnectionId, host: str, listener: str) -> None:
        """A client has connected."""
        self._reception.connected(connection, host, listener)

    def disconnected(self, connection: ConnectionId) -> None:
        """A client's connection is gone: nothing more is sent to it."""
        self._reception.disconnected(connection)
        self.fetches.forget(connection)
        self.produces.forget(connection)

    def receive(self, connection: ConnectionId, frame: Buffer, now: TimestampMs) -> None:
        """Handle one request. A request that is none closes its connection (FRM-06 to FRM-09)."""
        if not self.is_broken and (api := self._reception.receive(connection, frame, now)) is not None:
            self._drain(now, api.is_quiet)

    def answered(self, peer: NodeId, lane: str, frame: Buffer, now: TimestampMs) -> None:
        """Another node has answered what was sent to it on a lane; `frame` comes without its size."""
        if self.is_broken:
            return
        self.peers.answered(peer, lane, frame, now)
        self._drain(now)

    def unreachable(self, peer: NodeId, lane: str, now: TimestampMs) -> None:
        """The connection of a lane could not be made, or was lost: what was asked on it will not be answered."""
        if self.is_broken:
            return
        self.peers.unreachable(peer, lane, now)
        self._drain(now)

    def tick(self, now: TimestampMs) -> None:
        """Do what is due: parked requests, groups, retention, flushes, checkpoints, elections, heartbeats, fetches."""
        if self.is_broken:
            return
        self.produces.tick(now)
        self.fetches.tick(now)
        self.peers.tick(now)
        self.quorum.tick(now)
        self.controller.tick(now)
        if self.is_broker:
            self.membership.tick(now)
            self.forwarding.tick(now)
            if self.is_serving:
                self.groups.tick(now)
                self.transactions.tick(now)
                self.verification.tick(now)
                self.replicas.tick(now)
                self.replication.tick(now)
                self.moves.tick(now)
        self.logs.tick(now)
        self._drain(now)

    def next_deadline(self) -> TimestampMs:
        """When `tick` has something to do next."""
        if self._upkeep_deadline is None:
            self._upkeep_deadline = min([time for time in self._upkeep_deadlines() if time is not None])
        times = [
            self._upkeep_deadline,
            *self._reachable_deadlines(),
            self.produces.next_deadline(),
            self.fetches.next_deadline(),
        ]
        if self.is_serving:
            times.append(self.groups.next_deadline())
        return min([time for time in times if time is not None])

    def _upkeep_deadlines(self) -> list[TimestampMs | None]:
        """The deadlines that no quiet request reaches; None for never."""
        times = [self.quorum.next_deadline(), self.logs.next_deadline()]
        times += self.controller.deadlines()
        if self.is_broker:
            times += (self.membership.next_deadline(), self.forwarding.next_deadline())
            if self.is_serving:
                times += self.replicas.deadlines()
                times += self.replication.deadlines()
                times.append(self._directories.next_deadline())
        return times

    def _reachable_deadlines(self) -> Iterable[TimestampMs | None]:
        """The deadlines of parts that a quiet request may give work to, read after each; None for never."""
        yield self.peers.next_deadline()
        if self.is_broker and self.is_serving:
            yield self.transactions.next_deadline()
            yield self.verification.next_deadline()
            yield self.replication.proposal_deadline()
            yield self.moves.next_deadline()

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """What is to be done since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def leave(self, now: TimestampMs, timeout_ms: int) -> None:
        """A clean end is wanted: ask the controller to move leaderships away; `may_stop` tells when it has."""
        if self.is_broker:
            self.membership.leave(now, timeout_ms)
            self._drain(now)

    @property
    def is_broken(self) -> bool:
        """Whether the node must end: the metadata log's directory has failed, or all others, or the metadata cannot be applied.

        A directory has failed from its first input or output error on: of what was written since the last flush nothing is
        known then, and a flush that succeeds later says nothing about it (LogDirFailureChannel).
        """
        failures = (self.logs.failure, self.membership.failure, self._replay.failure)
        return self.quorum.is_broken or any(failure is not None for failure in failures)

    @property
    def failure(self) -> str:
        """Why it must end."""
        return (
            self.logs.failure
            or self.membership.failure
            or self._replay.failure
            or "the disk refused a change of the metadata log midway: only a new start finds out what it holds"
        )

    @property
    def may_stop(self) -> bool:
        """Whether `shut_down` would surprise nobody. Alone in the quorum, nobody is there to take over."""
        return not self.is_broker or len(self.voters) == 1 or self.membership.state is State.GONE

    def shut_down(self, now: TimestampMs) -> None:
        """A clean stop: everything flushed, checkpoints and snapshots written, the clean-shutdown file left."""
        self.quorum.resign(now)
        self._exchange(now)
        epoch = self.membership.broker_epoch if self.membership.broker_epoch >= 0 else None
        high_watermarks = self.replicas.high_watermarks()
        for partition in self.partitions.values():
            partition.shut_down()
        self.logs.shut_down(high_watermarks, now, epoch)

    # ---- the quorum

    def _drain(self, now: TimestampMs, is_quiet: bool = False) -> None:
        """The end of each step: send what the quorum asks, answer, apply what is committed, decide, propose, fetch.

        After a quiet request there is nothing of that to do, unless something is due.
        """
        if self.logs.has_failed:
            self._lose_directories(now)
            is_quiet = False
        if not is_quiet:
            self._upkeep_deadline = None
        if self._is_draining or not self._is_due(now):
            return
        self._is_draining = True
        try:
            self._exchange(now)
            self.controller.advance(now)
            self._exchange(now)
            self.active_controller.follow(now)
            if self.is_broker and self.is_serving:
                self.transactions.advance(now)
                self.replication.propose(now)
                self.replication.fetch(now)
                self._directories.advance(now)
                self._exchange(now)
        finally:
            self._is_draining = False

    def _is_due(self, now: TimestampMs) -> bool:
        """Whether there is background work; so it is when the deadlines have to be looked up."""
        times = (self._upkeep_deadline or now, *self._reachable_deadlines())
        return any(time is not None and time <= now for time in times)

    def _lose_directories(self, now: TimestampMs) -> None:
        """Directories have failed in this step: their partitions are offline, and the controller is told (KIP-858)."""
        for directory in self.logs.take_failed():
            self.log("error", f"log directory {directory.folder} has failed and is offline: {directory.disk.failure}")
            if self.logs.failure is None:
                self.replicas.lose_directory(directory, now)
                self.moves.lose_directory(directory)
                self.membership.lose_directory(directory.id, now)

    def _exchange(self, now: TimestampMs) -> None:
        for peer, body in self.quorum.take_sends():
            self._ask_voter(peer, body, now)
        for token, response in self.quorum.take_answers():
            assert isinstance(token, Request)
            self.respond(token, response)
        self._replay.advance(now)
        if self.is_broker and self.is_serving != self.has_begun_to_serve:
            self.has_begun_to_serve = self.is_serving
            if self.is_serving:
                self._replay.begin_to_serve(now)
                for connection, frame in self._reception.take_held():
                    self.receive(connection, frame, now)

    def _ask_voter(self, peer: NodeId, body: Message, now: TimestampMs) -> None:
        def answered(answer: Message | None, then: TimestampMs) -> None:
            if answer is None:
                self.quorum.unreachable(peer, body, then)
            else:
                self._misfit.heard(peer, answer)
                self.quorum.receive(peer, body, answer, then)

        lane = QUORUM_FETCH_LANE if body.KEY in METADATA_FETCHES else QUORUM_LANE
        self.peers.ask(peer, self.voters[peer], lane, body, now, self.quorum.settings.request_timeout_ms, answered)

    @property
    def is_serving(self) -> bool:
        """Whether the metadata are replayed up to this broker's registration: before, it says nothing to clients."""
        return self.membership.has_caught_up

    # ---- asking others

    def ask_controller(self, lane: str, body: Message, answered: Answered, now: TimestampMs) -> None:
        """Ask the active controller, which may be this node; None is the answer where there is none."""
        self.active_controller.ask(lane, body, answered, now)

    def ask_broker(
        self, broker: NodeId, lane: str, body: Message, timeout_ms: int, answered: Answered, now: TimestampMs
    ) -> None:
        """Ask another broker; one whose address is not known is asked at an address that nobody has."""
        self.peers.ask(broker, self._address_of(broker), lane, body, now, timeout_ms, answered)

    def _address_of(self, broker: NodeId) -> Address:
        found = self.image.brokers.get(broker)
        if found is not None:
            for endpoint in found.endpoints:
                if self._own_listener in ("", endpoint.listener):
                    return endpoint.host, endpoint.port
        return NOWHERE

    # ---- what replicas tell

    @property
    def broker_epoch(self) -> int:
        return self.membership.broker_epoch

    def peer_of(self, broker: NodeId) -> Peer | None:
        """A broker's registration, for leaders to judge followers by; of this broker, the one that it knows to be its own."""
        found = self.image.brokers.get(broker)
        if found is None:
            return None
        epoch = self.membership.broker_epoch if broker == self.id else found.epoch
        return Peer(epoch, found.fenced, found.in_controlled_shutdown)

    def on_role(self, partition: Partition, is_new_reign: bool, now: TimestampMs) -> None:
        """A replica leads or follows anew: its fetcher, its coordinator and who waits for it are told."""
        self.replication.on_role(partition)
        if is_new_reign and partition.topic == OFFSETS_TOPIC:
            self.groups.on_role(partition, now)
        if is_new_reign and partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.on_role(partition, now)
        self.on_moved(partition, now)

    def on_given_up(self, partition: Partition, now: TimestampMs) -> None:
        """A replica is no more: who waits for it is told."""
        self.replication.on_given_up(partition)
        self.on_moved(partition, now)
        if partition.topic == OFFSETS_TOPIC:
            self.groups.on_given_up(partition, now)
        if partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.coordination.on_given_up(partition, now)

    def on_moved(self, partition: Partition, now: TimestampMs) -> None:
        """Records, high watermark or ISR have moved: wake who waits for this partition."""
        key = (partition.topic, partition.index)
        self.fetches.wake(key, now)
        self.produces.wake(key, now)

    def storage_failed(self, name: str, error: Exception) -> None:
        """Say why a write or read was refused; clients get KAFKA_STORAGE_ERROR."""
        self.log("error", f"{name}: {error}")

    # ---- answering

    def respond(self, request: Request, response: Message) -> None:
        """Answer a request; an answer to a connection that is gone lets go of its slices."""
        parts = encode_response(request.key, request.version, request.correlation_id, response)
        self._effects.append(Respond(request.client.connection, parts))

    def respond_raw(self, request: Request, parts: list[Part]) -> None:
        """Answer with a frame that somebody else has encoded."""
        self._effects.append(Respond(request.client.connection, parts))

    def say_nothing(self, request: Request) -> None:
        """An acks=0 request went well: the connection goes on."""
        self._effects.append(Respond(request.client.connection, None))

    def close(self, request: Request, reason: str) -> None:
        """Close the request's connection without an answer."""
        self._effects.append(Close(request.client.connection, reason))

    # ---- what handlers ask

    def partition(self, topic: TopicName, index: int) -> Partition:
        """This node's replica.

        Errors: KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER for another node's, KAFKA_STORAGE_ERROR for
        one that is offline.
        """
        found = self.partitions.get((topic, index))
        if found is not None:
            return found
        if (topic, index) in self.replicas.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
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

    def is_alive(self, broker: NodeId) -> bool:
        found = self.image.brokers.get(broker)
        return found is not None and not found.fenced

    def controller_for_clients(self) -> NodeId:
        """Whom clients are told to be the controller: a live broker, which forwards (KIP-500)."""
        if self.image.brokers.get(self.id) is not None:
            return self.id
        return next((broker.id for broker in self.image.live_brokers()), -1)

    def kind_of(self, client: Client) -> str:
        """The kind of listener that a client is connected to."""
        return CONTROLLER if client.listener in self.controller_listeners else BROKER

    def apis_for(self, client: Client) -> dict[int, Api]:
        """The APIs of the listener that a client is connected to."""
        return self.apis[self.kind_of(client)]

    def endpoint_of(self, broker: NodeId, listener: str) -> Endpoint | None:
        found = self.image.brokers.get(broker)
        if found is None or found.fenced:
            return None
        return next((each for each in found.endpoints if each.listener == listener), None)

    def authorized_operations(self, resource: str) -> int:
        """The bit field of operations a client may do: all that the resource has, for there is no authorizer."""
        return {
            "topic": 0b0000_1101_1111_1000,
            "group": 0b0000_1101_0100_1000,
            "cluster": 0b0001_1111_1111_1000_0000 >> 4 & 0xFFFF,
        }[resource]

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

    def commit_metadata(self, records: Sequence[Message], now: TimestampMs) -> None:
        """Append the records of a decision that this node makes as the active controller.

        Errors: KafkaError KAFKA_STORAGE_ERROR when the metadata log cannot be written; nothing has then changed.
        """
        self.controller.append(records, now)

    def create_topic(self, topic: CreateTopicsRequest.CreatableTopic, now: TimestampMs) -> None:
        """Ask for a topic that nobody asked for by CreateTopics; a refusal is only logged."""

        def answered(answer: Message | None, then: TimestampMs) -> None:
            for result in answer.topics if isinstance(answer, CreateTopicsResponse) else ():
                if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self.log("warning", f"topic {topic.name} was not created: {result.error_message}")

        self.ask_controller(
            "topics", CreateTopicsRequest(topics=[topic], timeout_ms=CONTROLLER_TIMEOUT_MS), answered, now
        )


NOWHERE: Address = ("127.0.0.1", 1)
"""Where a broker is asked whose address the metadata do not tell: nobody listens there, and the question fails."""
