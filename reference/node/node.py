"""One node: messages and ticks in, effects out.

Inputs are `receive` (a frame from a connection), `disconnected`, `answered` and `unreachable` (for requests to other nodes),
and `tick`; each has the time in milliseconds. Outputs are effects, which `take_effects` returns, and the state on disk. The
same inputs on the same disk have the same outputs: a node has no clock, never waits, and draws only from a seeded generator.

A node is a broker, a controller, or both (process.roles). Each has a replica of the metadata log (`quorum`), whose committed
records make one image (`replay`) that all parts use. As a broker it registers (`membership`), creates its replicas
(`replicas`) and replicates them (`replication`). As a voter it may become the active controller (`controller`). The
`reception` gets requests, and the `channel` passes those for the active controller to it. This module only connects the parts:
no part and no handler uses it. Frames are not copied: a handler copies every part of a frame that it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.controller.quorum import Quorum
from reference.node.access import Access, authorizer_of
from reference.node.access_steps import STEPS
from reference.node.active_controller import ActiveController, VoterAddresses
from reference.node.apis import DECIDED_HANDLERS, Handler, apis_of
from reference.node.authentication import Authenticator
from reference.node.cleaning import set_up_cleaner
from reference.node.context import Context
from reference.node.controller_channel import HEARTBEAT_PURPOSE, ControllerChannel
from reference.node.controllers import Controllers, answer, quorum_settings
from reference.node.cordons import follow_cordons
from reference.node.directory_assignments import DirectoryAssignments
from reference.node.effects import ConnectionId, Effect, WantKeys
from reference.node.fetch import fetching_of
from reference.node.groups import Groups
from reference.node.identity import Identity, registration
from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, AutoTopicCreation, CoordinatorPartitions
from reference.node.joining import ClusterMember, ControllerPath
from reference.node.known_topics import TopicChanges
from reference.node.listeners import inter_broker_listener
from reference.node.loggers import Loggers
from reference.node.membership import Membership, MetadataProgress, State
from reference.node.moves import Moves
from reference.node.peers import Brokers, PeerRefusals, Peers
from reference.node.principals import ANONYMOUS
from reference.node.producers import ProducerIds
from reference.node.properties import controller_listeners_of, first_controller_listener_of, is_broker, voters_of
from reference.node.quotas import Quotas
from reference.node.reception import Reception, Served
from reference.node.registering import Registering
from reference.node.release import BROKER, CONTROLLER, SUPPORTED_FEATURES, peers_release_of
from reference.node.replay import MetadataSnapshots, Replay
from reference.node.replicas import Replicas
from reference.node.replication import FETCH_PURPOSE, Replication
from reference.node.requests import Purgatories, Responder
from reference.node.transactions import Transactions
from reference.node.verification import Verification
from reference.node.write_markers import write_markers_here
from reference.protocol.primitives import NO_EPOCH, BrokerEpoch, Buffer, Chance, LeaderEpoch, NodeId, TimestampMs
from reference.replication.fetcher import FetchSettings
from reference.replication.partition import Partition, Trace
from reference.replication.partition_state import Peer
from reference.security.signed_tokens import KeySet
from reference.storage.log import ProducerExpiry
from reference.storage.log_directory import Logger
from reference.storage.log_manager import LogManager


class Node:
    """A broker, a controller, or both."""

    membership: ClusterMember
    channel: ControllerPath
    controller: ActiveController
    _directories: DirectoryAssignments | None

    def __init__(
        self,
        identity: Identity,
        properties: Mapping[str, str],
        logs: LogManager,
        chance: Chance,
        now: TimestampMs,
        log: Logger = lambda level, message: None,
        tracer: Trace | None = None,
    ) -> None:
        """Start: load the logs and join the quorum. A node alone in the quorum also registers and creates its replicas.

        Errors: StorageError, CorruptFile, CodecError and RecordsError for a directory that cannot be used; KafkaError if the
        disk refuses the records of a first start.
        """
        self.id = identity.node
        self.cluster_id = identity.cluster_id
        self.loggers = Loggers()
        self.log: Logger = lambda level, text: log(level, text) if self.loggers.admits(level) else None
        self.image = MetadataImage()
        self.configuration = Configuration(identity.node, properties, self.image)
        self.is_broker = is_broker(properties)
        self._effects: list[Effect] = []
        self._is_draining = False
        self._has_replicas = False
        """Whether the replicas were compared with the metadata since the broker has caught up, and follow their changes."""
        self._upkeep_deadline: TimestampMs | None = None
        """The earliest of `_upkeep_deadlines`; None until it is computed."""
        self._background_deadline: TimestampMs | None = None
        """The earlier of that and of the deadlines that a quiet step may change, computed once per step; None otherwise."""
        self.quotas = Quotas(self.configuration)
        self.responder = Responder(self._emit, self.quotas)
        self.purgatories = Purgatories()
        self.peers = Peers(identity.node, self._emit, peers_release_of(properties))
        brokers = Brokers(self.peers, self.image, inter_broker_listener(properties))
        self.logs = logs
        self.replicas = self._load_replicas(now, tracer)
        self.partitions = self.replicas.partitions
        for each in logs.directories:
            set_up_cleaner(each.cleaner, self.configuration, self.partitions, logs)
        self.access = Access(self.configuration, authorizer_of(properties, self.image.acls), STEPS, self.log)
        self.context = context = self._new_context()
        self._join_cluster(identity, brokers, chance, now, log, tracer)
        self.producer_ids = ProducerIds(identity.node, self.image, lambda: self.broker_epoch, self.channel.ask)
        self.creation = AutoTopicCreation(self.configuration, self.channel.ask, self.log)
        self.groups = Groups(context, chance, tracer)
        write_here = partial(write_markers_here, context, self.groups.coordination.marker_written)
        self.transactions = Transactions(context, brokers, self.producer_ids.next, write_here, tracer)
        self.verification = Verification(context, brokers, self.transactions)
        fetching = FetchSettings.of(self.configuration.integer)
        self.replication = Replication(context, brokers, self.channel.ask, lambda: self.broker_epoch, fetching, now)
        self.fetching = fetching_of(context, chance, self.replication.may_propose, self.quotas)
        self._refusals = PeerRefusals(log)
        self.moves = Moves(context, logs)
        self._become_member(identity, now)
        self._reception = self._new_reception(chance)
        self._start(now)

    def _join_cluster(
        self, identity: Identity, brokers: Brokers, chance: Chance, now: TimestampMs, log: Logger, tracer: Trace | None
    ) -> None:
        """Create the parts for coordination with other nodes: here the metadata quorum, and the channel to its leader."""
        properties = self.configuration.static
        self.voters = voters_of(properties, identity.node, may_be_alone=not identity.bootstrap)
        metadata_log = self.logs.metadata_log(now, is_only_copy=len(self.voters) == 1)
        snapshots = MetadataSnapshots(self.configuration, metadata_log, self.log, now)
        quorum = self.quorum = Quorum(
            identity.node,
            identity.cluster_id,
            quorum_settings(identity, self.configuration, self.voters),
            self.logs.metadata.disk,
            metadata_log,
            chance,
            now,
            directory=self.logs.metadata.id,
            say=log,  # whatever the levels of the loggers are
            trace=tracer,
        )
        controllers = self.controllers = Controllers(quorum, self.voters)
        self._replay = Replay(quorum, self.image, self.peers, snapshots, self._metadata_applied)
        at = VoterAddresses(controllers.endpoints, first_controller_listener_of(properties))
        self.controller = ActiveController(quorum, self.configuration, identity, chance, DECIDED_HANDLERS, at, tracer)
        self.controller.appended = self._replay.advance
        reach, context = controllers.address_of, self.context
        self.channel = channel = ControllerChannel(quorum, self.controller, self.peers, reach, context, self.quotas)
        self.open_envelope: Handler = channel.open_envelope
        self.registering = Registering(identity, self.image, self.channel.ask, now)

    def _become_member(self, identity: Identity, now: TimestampMs) -> None:
        """Create the part that registers this broker."""
        self.membership = member = Membership(
            registration(identity, self.logs.live_ids, self.logs.last_broker_epoch, SUPPORTED_FEATURES),
            heartbeat_interval_ms=self.configuration.integer("broker.heartbeat.interval.ms"),
            directory_failure_timeout_ms=self.configuration.integer("log.dir.failure.timeout.ms"),
            progress=MetadataProgress(lambda: self.image.end_offset, lambda: self.replicas.are_behind),
            ask=lambda body, answered, then: self.channel.ask(HEARTBEAT_PURPOSE, body, answered, then),
            log=self.log,
            now=now,
        )
        self._replayed = member.replayed
        member.cordoned = follow_cordons(self.configuration, self.logs)
        self._directories = DirectoryAssignments(self.context, self.moves, member, self.channel.ask)

    def _new_reception(self, chance: Chance) -> Reception:
        apis = {kind: apis_of(kind, self, peers_release_of(self.configuration.static)) for kind in (BROKER, CONTROLLER)}
        served = Served(apis, controller_listeners_of(self.configuration.static))
        self._authenticator = self._new_authenticator(chance)
        return Reception(self.context, self.channel, self.loggers, served, self._emit, self._authenticator)

    def _new_authenticator(self, chance: Chance) -> Authenticator:
        return Authenticator(self.configuration, chance, lambda listener: self._emit(WantKeys(listener)), self.log)

    def _load_replicas(self, now: TimestampMs, tracer: Trace | None) -> Replicas:
        """Load the logs, each of a replica. Errors: those of a directory that cannot be used."""
        self.logs.configure(ProducerExpiry.of(self.configuration.integer))
        self.logs.load(now)
        return Replicas(self._assigned_image(), self.configuration, self.logs, self, self.log, now, tracer)

    def _assigned_image(self) -> MetadataImage:
        """The image with this node's assigned partitions."""
        return self.image

    def _new_context(self) -> Context:
        """The context for handlers."""
        return Context(
            self.id,
            self.cluster_id,
            self.image,
            self.configuration,
            self.replicas,
            self.purgatories,
            self.responder,
            self.log,
            self.access,
            CoordinatorPartitions(self.image, self.configuration),
            lambda: self.controllers.kraft_version,
        )

    def _start(self, now: TimestampMs) -> None:
        """Before its first request, a node alone in the quorum registers, replays the metadata and is unfenced."""
        self._drain(now)
        if self.is_broker and self.is_alone:
            for _ in ("registration", "heartbeat"):
                self.membership.tick(now)
                self._drain(now)

    # ---- inputs

    def connected(self, connection: ConnectionId, host: str, listener: str, principal: str = ANONYMOUS) -> None:
        """Add a client's connection; `principal` is the one that the transport has authenticated."""
        self._reception.connected(connection, host, listener, principal)

    def disconnected(self, connection: ConnectionId) -> None:
        """Drop a client's connection and its delayed requests."""
        self._reception.disconnected(connection)
        self.purgatories.fetches.forget(connection)
        self.purgatories.produces.forget(connection)

    def receive(self, connection: ConnectionId, frame: Buffer, now: TimestampMs) -> None:
        """Handle one request. An invalid request closes its connection (FRM-06 to FRM-09)."""
        if self._begins(now):
            if (api := self._reception.receive(connection, frame, now)) is not None:
                self._drain(now, api.is_quiet)
            else:
                self._upkeep_deadline = None  # a failed authentication is answered later

    def take_keys(self, listener: str, keys: KeySet) -> None:
        """Set the public keys for OAUTHBEARER tokens on a listener."""
        self._authenticator.take_keys(listener, keys)

    def answered(self, peer: NodeId, purpose: str, frame: Buffer, now: TimestampMs) -> None:
        """Handle another node's response on the channel of this purpose; `frame` has no size."""
        if self._begins(now):
            self.peers.answered(peer, purpose, frame, now)
            self._drain(now, is_quiet=purpose == FETCH_PURPOSE and self.replication.waits)

    def unreachable(self, peer: NodeId, purpose: str, now: TimestampMs) -> None:
        """Fail the open requests of a channel whose connection could not be opened or was lost."""
        if self._begins(now):
            self.peers.unreachable(peer, purpose, now)
            self._drain(now)

    def _begins(self, now: TimestampMs) -> bool:
        """Whether the node handles inputs; sets the time for quotas."""
        self.quotas.now = now
        self._background_deadline = None
        return not self.failure

    def tick(self, now: TimestampMs) -> None:
        """Do the work that is due: delayed requests, groups, retention, flushes, checkpoints, elections, heartbeats, fetches."""
        if not self._begins(now):
            return
        self.purgatories.produces.tick(now)
        self.purgatories.fetches.tick(now)
        self.peers.tick(now)
        self._authenticator.tick(now)
        self._tick_coordination(now)
        if self.is_broker:
            self.membership.tick(now)
            self.channel.tick(now)
            if self.has_caught_up:
                self.groups.tick(now)
                self.transactions.tick(now)
                self.verification.tick(now)
                self.replicas.tick(now)
                self.replication.tick(now)
                self.moves.tick(now)
        self.logs.tick(now)
        self._tick_registration(now)
        self._drain(now)

    def next_deadline(self) -> TimestampMs:
        """The time of the next work for `tick`."""
        deadline = min(self._next_background_work(), self.purgatories.next_deadline())
        self._background_deadline = None
        return min(deadline, self.groups.next_deadline()) if self.has_caught_up else deadline

    def _next_background_work(self) -> TimestampMs:
        """The time of the next work for `_drain`; computed once in a quiet step.

        The upkeep deadlines are cached; those that a quiet step may change are read after each step.
        """
        if self._background_deadline is None:
            if self._upkeep_deadline is None:
                self._upkeep_deadline = min([time for time in self._upkeep_deadlines() if time is not None])
            deadline = min(self._upkeep_deadline, self.peers.next_deadline())
            if self.is_broker and self.has_caught_up:
                of_transactions = min(self.transactions.next_deadline(), self.verification.next_deadline())
                deadline = min(deadline, self.replication.proposal_deadline(), of_transactions)
            self._background_deadline = deadline
        return self._background_deadline

    def _upkeep_deadlines(self) -> list[TimestampMs | None]:
        """The deadlines that a quiet step does not change; None for never."""
        times = [self._coordination_deadline(), self.logs.next_deadline(), self._authenticator.next_deadline()]
        times += self.controller.deadlines()
        if self.is_broker:
            times += (self.membership.next_deadline(), self.channel.next_deadline())
            if self.has_caught_up:
                times += self.replicas.deadlines()
                times += (*self.replication.deadlines(), self.moves.next_deadline())
                times.append(self._directories.next_deadline() if self._directories is not None else None)
        return times

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """The effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def leave(self, now: TimestampMs, timeout_ms: int) -> None:
        """Begin a controlled shutdown: the controller moves leaderships away, and `may_stop` is then True."""
        if self.is_broker:
            self.membership.leave(now, timeout_ms if self.configuration.broker("controlled.shutdown.enable") else 0)
            self._drain(now)

    @property
    def is_broken(self) -> bool:
        """Whether the node must shut down: the metadata cannot be applied, or the metadata log's or all directories failed.
        After a directory's first error, records that were not flushed before may be lost (LogDirFailureChannel)."""
        return bool(self.failure)

    @property
    def failure(self) -> str:
        """The reason why the node must shut down; empty if there is none."""
        return self.logs.failure or self.membership.failure or self._coordination_failure or ""

    @property
    def may_stop(self) -> bool:
        """Whether the node's leaderships have moved; True if no other node can take them over."""
        return not self.is_broker or self.is_alone or self.membership.state is State.GONE

    def shut_down(self, now: TimestampMs) -> None:
        """Shut down cleanly: flush all logs, write checkpoints and snapshots, and leave the clean-shutdown file."""
        self._resign(now)
        epoch = self.membership.broker_epoch if self.membership.broker_epoch >= 0 else None
        high_watermarks = self.replicas.high_watermarks()
        for partition in self.partitions.values():
            partition.shut_down()
        self.logs.shut_down(high_watermarks, now, epoch)

    # ---- the quorum

    @property
    def is_alone(self) -> bool:
        """Whether no other node can take over leaderships."""
        return self.controllers.is_alone

    @property
    def controller_epoch(self) -> LeaderEpoch:
        """The epoch in which this node leads the quorum; -1 if it does not."""
        return self.quorum.epoch if self.quorum.is_leader else NO_EPOCH

    def _tick_coordination(self, now: TimestampMs) -> None:
        self.quorum.tick(now)
        self.controller.tick(now)

    def _tick_registration(self, now: TimestampMs) -> None:
        self.registering.tick(now)

    def _coordination_deadline(self) -> TimestampMs | None:
        times = self.quorum.next_deadline(), self.registering.next_deadline()
        return min((time for time in times if time is not None), default=None)

    @property
    def _coordination_failure(self) -> str | None:
        if self.quorum.is_broken and self._replay.failure is None:
            return "the disk refused a change of the metadata log midway: only a new start finds out what it holds"
        return self._replay.failure

    def _resign(self, now: TimestampMs) -> None:
        """Leave the quorum at a clean stop."""
        self.quorum.resign(now)
        self._exchange(now)

    def _drain(self, now: TimestampMs, is_quiet: bool = False) -> None:
        """End each step: send the quorum's requests, answer, apply committed records, decide, propose, fetch.

        A quiet step does none of this, unless something is due.
        """
        if self.logs.has_failed:
            self._lose_directories(now)
            is_quiet = False
        if not is_quiet:
            self._upkeep_deadline = self._background_deadline = None
        if self._is_draining or (self._upkeep_deadline is not None and self._next_background_work() > now):
            return
        self._is_draining, self._background_deadline = True, None
        try:
            self._exchange(now)
            self.controller.advance(now)
            self._exchange(now)
            self.channel.follow(now)
            if self.is_broker and self.has_caught_up:
                self.transactions.advance(now)
                self.replication.propose(now)
                self.replication.fetch(now)
                if self._directories is not None:
                    self._directories.advance(now)
                self._exchange(now)
        finally:
            self._is_draining = False

    def _lose_directories(self, now: TimestampMs) -> None:
        """Take the partitions of directories that failed in this step offline, and inform the controller (KIP-858)."""
        for directory in self.logs.take_failed():
            self.log("error", f"log directory {directory.folder} has failed and is offline: {directory.disk.failure}")
            if self.logs.failure is None:
                self.replicas.lose_directory(directory, now)
                self.moves.lose_directory(directory)
                self.membership.lose_directory(directory.id, now)

    def _exchange(self, now: TimestampMs) -> None:
        if self.quorum.has_news(self.image.end_offset):
            for peer, body in self.quorum.take_sends():
                self.controllers.ask(self.peers, peer, body, now, self._refusals.take)
            for token, response in self.quorum.take_answers():
                answer(self.responder, token, response, now)
            self._replay.advance(now)
        if self.is_broker and self.has_caught_up != self._has_replicas:
            self._has_replicas = self.has_caught_up
            self._reception.serves = False
            if self._has_replicas:
                self.context.coordinators.settle()
                self._replay.guard(lambda: self.replicas.reconcile(now))
        if self._has_replicas and not self._reception.serves and not self.replicas.are_behind:
            self._reception.serves = True
            for connection, frame in self._reception.take_held():
                self.receive(connection, frame, now)

    def _metadata_applied(self, changes: TopicChanges, now: TimestampMs) -> None:
        self.access.metadata_applied(self.quorum, self.purgatories, self.partitions, now)
        if self.is_broker:
            self._replayed(changes.all_partitions, now)
            if self.has_caught_up and self._has_replicas:
                self.replicas.reconcile(now, None if changes.all_partitions else changes.partitions)
                self.groups.topics_changed(changes, now)
                if changes.brokers:
                    self.purgatories.brokers_changed(self.replicas.advanced(now), now)

    @property
    def has_caught_up(self) -> bool:
        """Whether the metadata are replayed up to this broker's registration. Clients wait until all replicas follow them."""
        return self.membership.has_caught_up

    # ---- what replicas report

    @property
    def broker_epoch(self) -> BrokerEpoch:
        return self.membership.broker_epoch

    def peer_of(self, broker: NodeId) -> Peer | None:
        """A broker's registration, for leaders' checks of followers; for this broker its own present one."""
        found = self.image.brokers.get(broker)
        if found is None:
            return None
        epoch = self.membership.broker_epoch if broker == self.id else found.epoch
        return Peer(epoch, found.fenced, found.in_controlled_shutdown)

    def on_role(self, partition: Partition, is_new_epoch: bool, now: TimestampMs) -> None:
        """A replica leads or follows again: inform its fetcher, its coordinator and delayed operations on it."""
        self.replication.on_role(partition)
        if is_new_epoch and partition.topic == OFFSETS_TOPIC:
            self.groups.on_role(partition, now)
        if is_new_epoch and partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.on_role(partition, now)
        self.purgatories.wake(partition, now)

    def on_given_up(self, partition: Partition, now: TimestampMs) -> None:
        """A replica was removed: inform its fetcher, its coordinator and delayed operations on it."""
        self.replication.on_given_up(partition)
        self.purgatories.wake(partition, now)
        if partition.topic == OFFSETS_TOPIC:
            self.groups.on_given_up(partition, now)
        if partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.coordination.on_given_up(partition, now)

    def on_retention(self, partition: Partition) -> None:
        """A replica's log start offset moved: the fetcher reports it to the leader, and fetches from it see it."""
        self.replication.on_retention(partition)
        self.purgatories.news(partition.key)
