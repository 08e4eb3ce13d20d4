"""The active controller: the one node of the quorum that decides.

Every voter has this part; it acts while the quorum says that this node leads and has everything that was decided before.
Decisions are made one after the other (`decisions`), each by a pure function of `reference.controller` upon the metadata as
committed; what those functions give is appended to the metadata log, and is true when the quorum has committed it. Besides
what is asked, the controller acts by itself: brokers that fall silent are fenced, preferred replicas are elected again, and
where the configuration allows it, partitions without a leader get an incomplete one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from reference.controller.brokers import fence_broker, register_broker, unregister_broker
from reference.controller.configs import Configuration, unify_min_isr
from reference.controller.decision import Decision
from reference.controller.directory_assignment import assign_replicas_to_dirs
from reference.controller.elections import balance_leaders, elect_leaders, elect_unclean_leaders
from reference.controller.features import update_features
from reference.controller.heartbeats import Heartbeats
from reference.controller.image import MetadataImage
from reference.controller.isr_proposals import alter_partition
from reference.controller.producer_ids import allocate_producer_ids
from reference.controller.quorum import Quorum
from reference.controller.reassignments import alter_partition_reassignments, list_partition_reassignments
from reference.controller.telling import Telling
from reference.node.decisions import Abandon, Answer, Decisions
from reference.node.refusals import refusal
from reference.node.release import SUPPORTED_FEATURES
from reference.protocol.errors import KafkaError
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from reference.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from reference.protocol.messages.update_features import UpdateFeaturesRequest
from reference.protocol.primitives import Epoch, TimestampMs
from reference.protocol.schema import Message
from reference.replication.partition import Trace

FIRST_FEATURES = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "transaction.version": 2,
}
"""What a new cluster finalizes: 4.3-IV0, KIP-966, KIP-848 and KIP-890, as Apache Kafka 4.3.1 does by default."""

FIRST_REGISTRATION_WITH_PREVIOUS_EPOCH = 3

Decide = Callable[[Message, int, TimestampMs], Message]
"""Takes a request and its version; gives the response, its records being appended."""


class Controller:
    """What this node does as the active controller, and whether it is."""

    def __init__(
        self,
        quorum: Quorum,
        image: MetadataImage,
        configuration: Configuration,
        cluster_id: str,
        incarnation: UUID,
        appended: Callable[[TimestampMs], None],
        trace: Trace | None = None,
    ) -> None:
        """`incarnation` is this process; `appended` is told of every append, so that what it commits can be applied."""
        self._quorum = quorum
        self._image = image
        self._configuration = configuration
        self._cluster_id = cluster_id
        self._incarnation = incarnation
        self._appended = appended
        self._telling = Telling(quorum.node, image, configuration, trace) if trace is not None else None
        self._decisions = Decisions(quorum, lambda: image.end_offset)
        self._reign: Epoch | None = None
        self._heartbeats: Heartbeats | None = None
        self._is_fencing = False
        integer = configuration.integer
        self._session_timeout_ms = integer("broker.session.timeout.ms")
        self._static_min_isr = configuration.static_min_isr
        self._balances = configuration.broker("auto.leader.rebalance.enable") is True
        self._balance_interval_ms = integer("leader.imbalance.check.interval.seconds") * 1000
        self._unclean_interval_ms = integer("unclean.leader.election.interval.ms")
        self._next_balance: TimestampMs = 0
        self._next_unclean: TimestampMs = 0

    # ---- whether

    @property
    def is_active(self) -> bool:
        """Whether this node decides now."""
        return self._reign is not None and self._reign == self._quorum.epoch and self._quorum.is_ready

    def advance(self, now: TimestampMs) -> None:
        """The quorum has moved: take over, step down, or go on with what waits."""
        if self._reign is not None and not self.is_active:
            self._reign = self._heartbeats = None
        if self._reign is None and self._quorum.is_ready and self._image.end_offset >= self._quorum.log_end_offset:
            self._take_over(now)
        self._decisions.advance(now)

    def _take_over(self, now: TimestampMs) -> None:
        """Begin a reign: every live broker gets a whole session, and a new cluster its features."""
        self._reign = self._quorum.epoch
        self._heartbeats = Heartbeats(self._session_timeout_ms, self._image, now)
        self._next_balance = now + self._balance_interval_ms
        self._next_unclean = now + self._unclean_interval_ms
        if not self._image.features:
            features = [FeatureLevelRecord(name=name, feature_level=level) for name, level in FIRST_FEATURES.items()]
            self._by_itself(lambda: Decision([*features, *unify_min_isr(self._image, self._static_min_isr)], None), now)

    # ---- deciding

    def submit(
        self, decide: Callable[[TimestampMs], Message | None], answer: Answer, abandon: Abandon, now: TimestampMs
    ) -> None:
        """Let something be decided when its turn comes; see `Decisions`."""
        self._decisions.submit(decide, answer, abandon, now)

    def append(self, records: Sequence[Message], now: TimestampMs) -> None:
        """Append the records of the decision that is being made.

        Errors: KafkaError KAFKA_STORAGE_ERROR, NOT_CONTROLLER; nothing was appended then.
        """
        if records:
            offset = self._quorum.append(records, now)
            if self._telling is not None:
                self._telling.tell(records, self._quorum.epoch, offset + len(records))
            self._appended(now)

    def hears(self, body: Message, now: TimestampMs) -> None:
        """A heartbeat counts from when it comes, however long its answer takes."""
        if isinstance(body, BrokerHeartbeatRequest) and self._heartbeats is not None:
            self._heartbeats.hear(self._image, body.broker_id, body.broker_epoch, now)

    def answer_to(self, key: int, version: int, body: Message, now: TimestampMs) -> Message:
        """Decide on a request that is the controller's own; a refusal is an answer too."""
        try:
            return _DECIDED[key](self, body, version, now)
        except KafkaError as error:
            refused = refusal(key, version, body, error.code)
            if isinstance(refused, UnregisterBrokerResponse):
                refused.error_message = error.message or ""
            return refused

    def _made(self, decision: Decision[Any], now: TimestampMs) -> Any:
        self.append(decision.records, now)
        return decision.response

    def register_broker(self, body: BrokerRegistrationRequest, version: int, now: TimestampMs) -> Message:
        assert self._heartbeats is not None
        decision = register_broker(
            self._image,
            self._configuration,
            body,
            cluster_id=self._cluster_id,
            offset=self._quorum.log_end_offset,
            has_session=self._has_session(body, now),
            knows_previous_epoch=version >= FIRST_REGISTRATION_WITH_PREVIOUS_EPOCH,
        )
        return self._made(decision, now)

    def _has_session(self, body: BrokerRegistrationRequest, now: TimestampMs) -> bool:
        """Whether another life of the broker may go on. Of this node there is none but this process, which holds its folder."""
        assert self._heartbeats is not None
        if body.broker_id == self._quorum.node:
            return body.incarnation_id != self._incarnation
        return self._heartbeats.has_session(self._image, body.broker_id, now)

    def broker_heartbeat(self, body: BrokerHeartbeatRequest, version: int, now: TimestampMs) -> Message:
        assert self._heartbeats is not None
        offset = self._quorum.log_end_offset
        return self._made(self._heartbeats.broker_heartbeat(self._image, self._configuration, body, offset), now)

    def alter_partition(self, body: AlterPartitionRequest, version: int, now: TimestampMs) -> Message:
        return self._made(alter_partition(self._image, self._configuration, body), now)

    def allocate_producer_ids(self, body: AllocateProducerIdsRequest, version: int, now: TimestampMs) -> Message:
        return self._made(allocate_producer_ids(self._image, body), now)

    def assign_replicas_to_dirs(self, body: AssignReplicasToDirsRequest, version: int, now: TimestampMs) -> Message:
        return self._made(assign_replicas_to_dirs(self._image, self._configuration, body), now)

    def elect_leaders(self, body: ElectLeadersRequest, version: int, now: TimestampMs) -> Message:
        return self._made(elect_leaders(self._image, self._configuration, body), now)

    def alter_partition_reassignments(
        self, body: AlterPartitionReassignmentsRequest, version: int, now: TimestampMs
    ) -> Message:
        return self._made(alter_partition_reassignments(self._image, self._configuration, body), now)

    def list_partition_reassignments(
        self, body: ListPartitionReassignmentsRequest, version: int, now: TimestampMs
    ) -> Message:
        return list_partition_reassignments(self._image, body)

    def unregister_broker(self, body: UnregisterBrokerRequest, version: int, now: TimestampMs) -> Message:
        self.append(unregister_broker(self._image, self._configuration, body.broker_id), now)
        return UnregisterBrokerResponse()

    def update_features(self, body: UpdateFeaturesRequest, version: int, now: TimestampMs) -> Message:
        return self._made(
            update_features(self._image, body, self._quorum.node, SUPPORTED_FEATURES, self._static_min_isr), now
        )

    # ---- by itself

    def tick(self, now: TimestampMs) -> None:
        """Do what is due without being asked."""
        if not self.is_active or self._heartbeats is None:
            return
        deadline = self._heartbeats.next_deadline()
        if deadline is not None and deadline <= now and not self._is_fencing:
            self._fence_silent(now)
        if self._balances and now >= self._next_balance:
            self._next_balance = now + self._balance_interval_ms
            self._by_itself(lambda: balance_leaders(self._image, self._configuration), now)
        if now >= self._next_unclean:
            self._next_unclean = now + self._unclean_interval_ms
            self._by_itself(lambda: elect_unclean_leaders(self._image, self._configuration), now)

    def deadlines(self) -> Iterable[TimestampMs | None]:
        """When `tick` has something to do; None for never."""
        if not self.is_active or self._heartbeats is None:
            return ()
        silent = None if self._is_fencing else self._heartbeats.next_deadline()
        return silent, self._next_balance if self._balances else None, self._next_unclean

    def _by_itself(self, decide: Callable[[], Decision[Any]], now: TimestampMs) -> None:
        """Decide something that nobody asked for; where the disk refuses, the next turn tries again."""

        def make(then: TimestampMs) -> None:
            try:
                self._made(decide(), then)
            except KafkaError:
                return

        self.submit(make, lambda answer, then: None, lambda then: None, now)

    def _fence_silent(self, now: TimestampMs) -> None:
        """Fence the brokers that were not heard from in time, one decision each, until there is none left."""
        self._is_fencing = True
        fenced: list[int] = []

        def make(then: TimestampMs) -> None:
            broker = self._heartbeats.overdue(self._image, then) if self._heartbeats is not None else None
            if broker is not None:
                fenced.append(broker)
                try:
                    self.append(fence_broker(self._image, self._configuration, broker), then)
                except KafkaError:
                    fenced.clear()

        def made(answer: Message | None, then: TimestampMs) -> None:
            self._is_fencing = False
            if fenced:
                self._fence_silent(then)

        def abandoned(then: TimestampMs) -> None:
            self._is_fencing = False

        self.submit(make, made, abandoned, now)


_DECIDED: dict[int, Callable[[Controller, Any, int, TimestampMs], Message]] = {
    43: Controller.elect_leaders,
    45: Controller.alter_partition_reassignments,
    46: Controller.list_partition_reassignments,
    56: Controller.alter_partition,
    57: Controller.update_features,
    62: Controller.register_broker,
    63: Controller.broker_heartbeat,
    64: Controller.unregister_broker,
    67: Controller.allocate_producer_ids,
    73: Controller.assign_replicas_to_dirs,
}
"""Requests that are the controller's own, by API key."""


def is_controllers_own(key: int) -> bool:
    return key in _DECIDED
