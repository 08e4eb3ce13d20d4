"""A broker with ZooKeeper.

It is a `Node` with a ZooKeeper session instead of the metadata quorum. Its inputs are those of `Node` and `zookeeper_event`;
its effects include those of `reference.zookeeper.operations`. Three images share the settings: `image` has the cluster by
UpdateMetadata, `_assigned` this broker's replicas by LeaderAndIsr. The controller's image has the content of ZooKeeper, while
this broker is the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.node.context import Context
from reference.node.controller_channel import HEARTBEAT_PURPOSE
from reference.node.identity import Identity
from reference.node.internal_topics import COORDINATED
from reference.node.known_topics import TopicChanges
from reference.node.listeners import inter_broker_listener
from reference.node.node import Node
from reference.node.peers import Answered, Brokers
from reference.node.reception import Reception, Served
from reference.node.release import BEFORE_IDS, BROKER, peers_release_of
from reference.node.replication import FETCH_PURPOSE
from reference.node.requests import Key
from reference.node.zookeeper.apis import DECIDED, ORDERS, zookeeper_apis
from reference.node.zookeeper.channel import ZooKeeperChannel
from reference.node.zookeeper.controller import ZooKeeperController
from reference.node.zookeeper.controller_requests import PURPOSE, ControllerRequests
from reference.node.zookeeper.dynamic_configs import DynamicConfigs
from reference.node.zookeeper.election import Election
from reference.node.zookeeper.older_protocol import OlderForm
from reference.node.zookeeper.orders import Order, Orders
from reference.node.zookeeper.producer_blocks import ProducerBlocks
from reference.node.zookeeper.registration import ZooKeeperMembership
from reference.node.zookeeper.writer import Writer
from reference.protocol.messages.alter_partition import AlterPartitionResponse
from reference.protocol.primitives import NO_EPOCH, BrokerEpoch, Chance, LeaderEpoch, NodeId, TimestampMs, TopicName
from reference.protocol.schema import Message
from reference.replication.partition import Partition, Trace
from reference.replication.partition_state import Peer
from reference.storage.log_directory import Logger
from reference.zookeeper import znodes
from reference.zookeeper.operations import Code, GetData, Result, ZooKeeperEvent
from reference.zookeeper.session import Session


class ZooKeeperNode(Node):
    """A broker, which may be the controller."""

    # ---- wiring

    def _new_context(self) -> Context:
        return replace(super()._new_context(), kraft_version=lambda: 0, controller=lambda: self.orders.controller)

    def _assigned_image(self) -> MetadataImage:
        self._assigned = MetadataImage(configs=self.image.configs)
        return self._assigned

    def _join_cluster(
        self, identity: Identity, brokers: Brokers, chance: Chance, now: TimestampMs, log: Logger, tracer: Trace | None
    ) -> None:
        self.session = Session(self._emit)
        self.session.connected = self._connected
        self.session.expired = self._expired
        self._trace = tracer
        self.configs = DynamicConfigs(self.session, self.image.configs, self._configs_changed, self.log)
        self.orders = Orders(self.id, self.image, self._assigned, self.configs, lambda: self.broker_epoch, tracer)
        self.orders.roles_changed = self._roles_changed
        self.orders.metadata_changed = self._metadata_changed
        known = MetadataImage(configs=self.image.configs, is_beside_zookeeper=True)
        writer = Writer(self.id, known, self.session)
        writer.known = self.configs.known
        self._controller_timeout_ms = self.configuration.integer("controller.socket.timeout.ms")
        listener = inter_broker_listener(self.configuration.static)
        at_controller = Brokers(self.peers, known, listener)
        self.controller_requests = ControllerRequests(
            self.id, known, partial(self._ask_broker, at_controller), self.log
        )
        self.controller = self._deciding = controller = ZooKeeperController(
            writer,
            Configuration(self.id, self.configuration.static, known),
            identity,
            chance,
            DECIDED,
            self.controller_requests,
            tracer,
        )
        controller.read_configs = lambda topics, then: self.configs.ensure(topics, lambda later: None, then)
        self.election = Election(self.id, self.session, controller.won, self._lost, self.log)
        controller.reload = self.election.look
        self.channel = self._path = ZooKeeperChannel(
            self.id,
            controller,
            brokers,
            lambda: self.election.controller,
            lambda: self.orders.controller_epoch,
            self.peers,
            self.responder,
        )
        if peers_release_of(self.configuration.static) == BEFORE_IDS:
            brokers.translate = OlderForm(self._assigned, self.image).translate
            self._path.blocks = ProducerBlocks(self.id, self.session, self.log)

    def _become_member(self, identity: Identity, now: TimestampMs) -> None:
        self.membership = self._member = ZooKeeperMembership(
            identity,
            self.session,
            self._load,
            lambda body, answered, then: self.channel.ask(HEARTBEAT_PURPOSE, body, answered, then),
            self._registered,
            self.log,
        )
        self._directories = None
        self.replication.accepted = self._accepted
        self.verification.asks_others = peers_release_of(self.configuration.static) != BEFORE_IDS

    def _new_reception(self, chance: Chance) -> Reception:
        apis = {BROKER: zookeeper_apis(self, self._path, self.orders.handler(self.responder))}
        self._authenticator = authenticator = self._new_authenticator(chance)
        served = Served(apis, never_held=ORDERS)
        return Reception(self.context, self.channel, self.loggers, served, self._emit, authenticator)

    def _start(self, now: TimestampMs) -> None:
        self.session.open()
        self._drain(now)

    # ---- inputs

    def zookeeper_event(self, event: ZooKeeperEvent, now: TimestampMs) -> None:
        """Handle an event of ZooKeeper or of the session."""
        if self._begins(now):
            self.session.take(event, now)
            self._drain(now)

    def _connected(self, now: TimestampMs) -> None:
        self._member.connected(now)

    def _load(self, then: Callable[[TimestampMs], None], now: TimestampMs) -> None:
        """Read the settings and the coordinators' numbers of partitions: the first metadata may have no topic yet."""

        def loaded(at: TimestampMs) -> None:
            self.session.ask_all([GetData(znodes.topic_path(topic)) for topic in COORDINATED], read, at)

        def read(results: list[Result], at: TimestampMs) -> None:
            if all(each.code in (Code.OK, Code.NO_NODE) for each in results):
                self.context.coordinators.settle(self._partition_counts(results))
                then(at)

        self.configs.load(loaded, now)

    def _partition_counts(self, results: list[Result]) -> dict[TopicName, int]:
        counts: dict[TopicName, int] = {}
        for topic, result in zip(COORDINATED, results, strict=True):
            if result.code == Code.OK:
                try:
                    assignment = znodes.decode_assignment(znodes.topic_path(topic), result.data)
                    counts[topic] = len(assignment.partitions)
                except znodes.DamagedZnode as error:
                    self.log("error", str(error))
        return counts

    def _registered(self, now: TimestampMs) -> None:
        self._step("RegisterBroker", brokerEpoch=self.broker_epoch)
        self.orders.registered(now)
        self.election.look(now)

    def _expired(self, now: TimestampMs) -> None:
        """Resign as the controller after the session has expired."""
        self.log("warning", "the session with ZooKeeper has ended")
        self._deciding.resign(now)

    def _lost(self, now: TimestampMs) -> None:
        self._deciding.resign(now)

    def _step(self, action: str, **arguments: object) -> None:
        if self._trace is not None:
            self._trace(action, {"node": self.id, "args": {"broker": self.id, **arguments}})

    # ---- the controller's requests

    def _ask_broker(
        self, brokers: Brokers, broker: NodeId, purpose: str, body: Message, answered: Answered, now: TimestampMs
    ) -> None:
        """Send a request of this controller to a broker; to this one without the network."""
        if broker == self.id and isinstance(body, Order):
            self.orders.take(body, answered, now)
        else:
            brokers.ask(broker, purpose, body, self._controller_timeout_ms, answered, now)

    def _roles_changed(self, keys: list[Key], now: TimestampMs) -> None:
        """Apply LeaderAndIsr or StopReplica. For a leader's new epoch the fetcher opens a new connection."""
        for key in keys:
            partition = self._assigned.partition(*key)
            held = self.partitions.get(key)
            if partition is None or partition.leader in (self.id, NO_EPOCH):
                continue
            if held is None or held.leader_epoch < partition.leader_epoch:
                self.peers.hang_up(partition.leader, FETCH_PURPOSE, now)
        self._guard_reconcile(keys, now)

    def _guard_reconcile(self, keys: list[Key], now: TimestampMs) -> None:
        self.replicas.reconcile(now, keys)
        self._upkeep_deadline = None

    def _metadata_changed(self, changes: TopicChanges, moved: set[NodeId], now: TimestampMs) -> None:
        """Apply UpdateMetadata."""
        for broker in sorted(moved - {self.id}):
            for purpose in {FETCH_PURPOSE: None, PURPOSE: None, **dict.fromkeys(self.peers.purposes_to(broker))}:
                self.peers.hang_up(broker, purpose, now)
        if moved:
            # LeaderAndIsr comes first: a high watermark may still wait for a caught-up replica of a broker that is gone.
            self.purgatories.brokers_changed(self.replicas.advanced(now), now)
        if self.id in self.image.brokers:
            self._member.has_caught_up = True
        self.groups.topics_changed(changes, now)
        self.configs.ensure(sorted(changes.names & self.image.topics.keys()), lambda then: None, now)

    def _configs_changed(self, now: TimestampMs) -> None:
        """Apply settings to the cleaners, and to the replicas for which this broker has a role; others may not be kept."""
        self.logs.settings_changed()
        topics = self._assigned.topics.values()
        self._guard_reconcile([(topic.name, index) for topic in topics for index in topic.partitions], now)

    def _accepted(self, partition: Partition, result: AlterPartitionResponse.PartitionData, now: TimestampMs) -> None:
        self.orders.accepted(partition.key, result.leader_epoch, result.partition_epoch, [*result.isr], now)

    # ---- the node's coordination

    @property
    def is_alone(self) -> bool:
        return False

    @property
    def controller_epoch(self) -> LeaderEpoch:
        return self.controller_requests.controller_epoch

    @property
    def broker_epoch(self) -> BrokerEpoch:
        return self.membership.broker_epoch

    def _tick_coordination(self, now: TimestampMs) -> None:
        self.controller.tick(now)
        self.controller_requests.send(now)

    def _tick_registration(self, now: TimestampMs) -> None:
        """Do nothing: only brokers register."""

    def _coordination_deadline(self) -> TimestampMs | None:
        return None

    @property
    def _coordination_failure(self) -> str | None:
        return None

    def _resign(self, now: TimestampMs) -> None:
        self._deciding.resign(now)
        self.session.close()

    def _exchange(self, now: TimestampMs) -> None:
        self.controller_requests.send(now)
        if self.has_caught_up != self._reception.serves:
            self._reception.serves = self.has_caught_up
            if self.has_caught_up:
                self.context.coordinators.settle()
                for connection, frame in self._reception.take_held():
                    self.receive(connection, frame, now)

    def peer_of(self, broker: NodeId) -> Peer | None:
        """A live broker; only the controller knows other brokers' epochs."""
        if broker == self.id:
            return Peer(self.broker_epoch)
        return Peer(None) if broker in self.image.brokers else None
