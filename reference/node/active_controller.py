"""The active controller: the quorum's leader, which makes the cluster's decisions.

Every voter has this part; it is active while this node leads the quorum and has all earlier decisions. Decisions are made one
after the other, each by a pure function of `reference.controller` on the committed metadata. A decision appends records, and
its response is sent when they are committed. With one voter records are committed when they are written, so no response is
delayed. A deposed node sends no response that may be wrong: it abandons the decision, and the request goes to its successor
(`controller_channel`). The controller also acts on its own: it fences brokers whose sessions expire, elects preferred leaders,
and if the configuration allows it, unclean ones.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from reference.controller.brokers import fence_broker, register_broker, unregister_broker
from reference.controller.configs import Configuration, unify_min_isr
from reference.controller.controllers import register_controller
from reference.controller.decision import Decision
from reference.controller.decision_tracing import DecisionTracing
from reference.controller.delegation_tokens import remove_expired
from reference.controller.directory_assignment import assign_replicas_to_dirs
from reference.controller.elections import balance_leaders, elect_leaders, elect_unclean_leaders
from reference.controller.features import raised_kraft_version, refused, update_features
from reference.controller.heartbeats import Heartbeats
from reference.controller.image import Endpoint
from reference.controller.isr_proposals import alter_partition
from reference.controller.metadata_log import MAX_RECORDS_IN_BATCH
from reference.controller.producer_ids import allocate_producer_ids
from reference.controller.quorum import Quorum
from reference.controller.reassignments import alter_partition_reassignments, list_partition_reassignments
from reference.node.decisions import Abandon, Answer, DecisionLog, Decisions
from reference.node.identity import Identity
from reference.node.principals import ANONYMOUS
from reference.node.quotas import Mutations
from reference.node.refusals import items_of, refusal
from reference.node.release import FIRST_FEATURES, SUPPORTED_FEATURES, peers_release_of
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.abort_transaction_record import AbortTransactionRecord
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
from reference.protocol.messages.controller_registration import ControllerRegistrationRequest
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from reference.protocol.messages.update_features import UpdateFeaturesRequest
from reference.protocol.primitives import AT_ONCE, NO_UUID, Chance, LeaderEpoch, NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.replication.partition import Trace

FIRST_REGISTRATION_WITH_PREVIOUS_EPOCH = 3
FIRST_DESCRIBE_WITH_NODES = 2
RECORDS_IN_A_PART = MAX_RECORDS_IN_BATCH
"""Records in a batch of a decision that may take effect in parts."""


VOTER_CHANGES = frozenset({AddRaftVoterRequest.KEY, RemoveRaftVoterRequest.KEY})
"""APIs that the quorum answers itself, when their changes are committed (KIP-853)."""

TIMED = (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    CreatePartitionsRequest,
    ElectLeadersRequest,
    AlterPartitionReassignmentsRequest,
)
"""Requests whose timeout Kafka's controller applies (ControllerApis)."""

VoterEndpoints = Mapping[NodeId, Sequence[Endpoint]]


Decide = Callable[["ActiveController", int, Any, TimestampMs], Message]
"""Takes a request's version and body, appends its records, and returns the response. Errors: KafkaError, a refusal."""


class Asked(NamedTuple):
    """A request for the active controller."""

    key: int
    version: int
    body: Message
    mutations: Mutations | None = None
    """Charges its partitions to the client's quota."""
    requester: str = ANONYMOUS
    """The client's principal."""


class VoterAddresses(NamedTuple):
    """The addresses of the controllers."""

    endpoints: Callable[[], VoterEndpoints] = dict
    listener: str = ""
    """The first of the controllers' listeners."""


class ActiveController:
    """The active controller's part of a node; idle while another node is active."""

    def __init__(
        self,
        quorum: DecisionLog,
        configuration: Configuration,
        identity: Identity,
        chance: Chance,
        handlers: Mapping[int, Decide],
        voters: VoterAddresses = VoterAddresses(),
        trace: Trace | None = None,
    ) -> None:
        """`handlers` has one function per API key."""
        self.appended: Callable[[TimestampMs], None] = lambda now: None
        """Called after each append."""
        self._quorum = quorum
        self.image = image = configuration.image
        self.configuration = configuration
        self._identity = identity
        self._voters = voters.endpoints
        self.listener = voters.listener
        self.chance = chance
        self._handlers = handlers
        self._tracing = DecisionTracing(quorum.node, image, configuration, trace) if trace is not None else None
        self._decisions = Decisions(quorum, lambda: image.end_offset)
        self._first_features = FIRST_FEATURES[peers_release_of(configuration.static)]
        self._epoch: LeaderEpoch | None = None
        self._heartbeats: Heartbeats | None = None
        self._is_fencing = False
        self._mutations: Mutations | None = None
        """The mutations of the request that is being decided."""
        self.requester = ANONYMOUS
        """The principal of that request."""
        integer = configuration.integer
        self._session_timeout_ms = integer("broker.session.timeout.ms")
        self._static_min_isr = configuration.static_min_isr
        self._balances = configuration.broker("auto.leader.rebalance.enable") is True
        self._balance_interval_ms = integer("leader.imbalance.check.interval.seconds") * 1000
        self._unclean_interval_ms = integer("unclean.leader.election.interval.ms")
        self._next_balance = AT_ONCE
        self._next_unclean = AT_ONCE
        self._expiry_check_interval_ms = integer("delegation.token.expiry.check.interval.ms")
        self._next_expiry_check = AT_ONCE

    # ---- whether

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller now."""
        return self._epoch is not None and self._epoch == self._quorum.epoch and self._quorum.is_ready

    def advance(self, now: TimestampMs) -> None:
        """Take over, step down, or continue with pending decisions, after the quorum has moved."""
        if self._epoch is not None and not self.is_active:
            self._epoch = self._heartbeats = None
        if self._epoch is None and self._quorum.is_ready:
            self._end_open_transaction(now)
        if self._epoch is None and self._quorum.is_ready and self.image.end_offset >= self._quorum.log_end_offset:
            self._take_over(now)
        self._decisions.advance(now)

    def _end_open_transaction(self, now: TimestampMs) -> None:
        """Abort a former controller's open metadata transaction once all its records are committed (KIP-868)."""
        quorum = self._quorum
        if self.image.open_transaction is not None and quorum.high_watermark == quorum.log_end_offset:
            with suppress(KafkaError):  # retried when the quorum moves
                quorum.append([AbortTransactionRecord(reason="the controller that began it is gone")], now)
            self.appended(now)

    def _take_over(self, now: TimestampMs) -> None:
        """Become active: start a full session of each unfenced broker, and write a new cluster's first features."""
        self._epoch = self._quorum.epoch
        self._heartbeats = Heartbeats(self._session_timeout_ms, self.image, now)
        self._next_balance = now + self._balance_interval_ms
        self._next_unclean = now + self._unclean_interval_ms
        self._next_expiry_check = now + self._expiry_check_interval_ms
        if not self.image.features:
            features = [
                FeatureLevelRecord(name=name, feature_level=level) for name, level in self._first_features.items()
            ]
            # The levels are those of the file's release, not those of a formatting tool for a Kafka node.
            formatted = [each for each in self._quorum.bootstrap_records if not isinstance(each, FeatureLevelRecord)]
            first = [*features, *unify_min_isr(self.image, self._static_min_isr), *formatted]
            self._by_itself(lambda: Decision(first, None), now)

    # ---- deciding

    def decides(self, key: int) -> bool:
        """Whether the active controller answers requests of this API."""
        return key in self._handlers or key in VOTER_CHANGES

    def decide(
        self,
        asked: Asked,
        answer: Answer,
        abandon: Abandon,
        now: TimestampMs,
    ) -> None:
        """Decide a request when its turn comes; `answer` gets the response, also a refusal, when its records are committed."""
        body = asked.body
        if isinstance(body, BrokerHeartbeatRequest) and self._heartbeats is not None:
            # the session is renewed on arrival, however late the response is
            self._heartbeats.receive(self.image, body.broker_id, body.broker_epoch, now)
        if isinstance(body, AddRaftVoterRequest):
            self._metadata_quorum.handle_add_raft_voter(body, answer, now)
            return
        if isinstance(body, RemoveRaftVoterRequest):
            self._metadata_quorum.handle_remove_raft_voter(body, answer, now)
            return

        deadline = self.deadline_of(asked.key, body, now)

        def respond(then: TimestampMs) -> Message:
            if deadline is not None and deadline <= then:
                return refusal(asked.key, asked.version, body, ErrorCode.REQUEST_TIMED_OUT)
            self._mutations, self.requester = asked.mutations, asked.requester
            try:
                return self._respond(asked.key, asked.version, body, then)
            finally:
                self._mutations = None

        self._decisions.submit(respond, answer, abandon, now)

    def deadline_of(self, key: int, body: Message, now: TimestampMs) -> TimestampMs | None:
        """The latest time at which a decision on the request may begin; None without a limit, or for a request without items.

        Kafka removes a request's event from the controller's queue when its timeout passes. With a timeout of 0 or less it
        passes at once, and nothing is done (4.3.1, run).
        """
        if not isinstance(body, TIMED):
            return None
        asks_for_all = isinstance(body, ElectLeadersRequest) and body.topic_partitions is None
        return TimestampMs(now + body.timeout_ms) if asks_for_all or items_of(key, body) else None

    def new_id(self) -> str:
        """A random id in the form of org.apache.kafka.common.Uuid, without a leading dash, which tools would parse as a flag."""
        while True:
            text = (
                base64.urlsafe_b64encode(UUID(int=self.chance.getrandbits(128), version=4).bytes).decode().rstrip("=")
            )
            if not text.startswith("-"):
                return text

    def charge(self, partitions: int) -> None:
        """Charge created or deleted partitions to the client's quota. Errors: KafkaError THROTTLING_QUOTA_EXCEEDED."""
        if self._mutations is not None:
            self._mutations.charge(partitions)

    def _respond(self, key: int, version: int, body: Message, now: TimestampMs) -> Message:
        try:
            return self._handlers[key](self, version, body, now)
        except KafkaError as error:
            refused = refusal(key, version, body, error.code)
            if isinstance(refused, UnregisterBrokerResponse):
                refused.error_message = error.message or ""
            return refused

    def append(self, records: Sequence[Message], now: TimestampMs) -> None:
        """Append the records of a client's operation in one batch, so that they commit together.

        Errors: KafkaError POLICY_VIOLATION for more records than fit into a batch (as Kafka 4.3.1 for topics of 10,000
        partitions or more), KAFKA_STORAGE_ERROR, NOT_CONTROLLER; then nothing was appended.
        """
        if len(records) > MAX_RECORDS_IN_BATCH:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"the operation needs more than {MAX_RECORDS_IN_BATCH} records"
            )
        self._append_batches(records, now, is_atomic=True)

    def _append_batches(self, records: Sequence[Message], now: TimestampMs, *, is_atomic: bool = False) -> None:
        """Append the records of a decision about many partitions, in as many batches as they need; `is_atomic`: in as few.

        If the controller fails between two batches, the first is kept: a later decision does the rest, as in Kafka
        (`QuorumController.appendRecords`, results that are not atomic).
        Errors: as `append`; earlier batches are appended.
        """
        if not records:
            return
        most = MAX_RECORDS_IN_BATCH if is_atomic else RECORDS_IN_A_PART
        for at in range(0, len(records), most):
            self._quorum.append(records[at : at + most], now, self.image.metadata_level)
        if self._tracing is not None:
            self._tracing.trace_step(records, self._quorum.epoch, self._quorum.log_end_offset)
        self.appended(now)

    def _made(self, decision: Decision[Any], now: TimestampMs, *, is_atomic: bool = False) -> Any:
        self._append_batches(decision.records, now, is_atomic=is_atomic)
        return decision.response

    def register_broker(self, version: int, body: BrokerRegistrationRequest, now: TimestampMs) -> Message:
        assert self._heartbeats is not None
        decision = register_broker(
            self.image,
            self.configuration,
            body,
            cluster_id=self._identity.cluster_id,
            offset=self._quorum.log_end_offset,
            has_session=self._has_session(body, now),
            knows_previous_epoch=version >= FIRST_REGISTRATION_WITH_PREVIOUS_EPOCH,
        )
        return self._made(decision, now, is_atomic=True)

    def register_controller(self, version: int, body: ControllerRegistrationRequest, now: TimestampMs) -> Message:
        return self._made(register_controller(self.image, body), now)

    def _has_session(self, body: BrokerRegistrationRequest, now: TimestampMs) -> bool:
        """Whether another incarnation of the broker has a session. For this node's own id, only this process has one."""
        assert self._heartbeats is not None
        if body.broker_id == self._quorum.node:
            return body.incarnation_id != self._identity.incarnation
        return self._heartbeats.has_session(self.image, body.broker_id, now)

    def broker_heartbeat(self, version: int, body: BrokerHeartbeatRequest, now: TimestampMs) -> Message:
        assert self._heartbeats is not None
        offset = self._quorum.log_end_offset
        return self._made(self._heartbeats.broker_heartbeat(self.image, self.configuration, body, offset), now)

    def alter_partition(self, version: int, body: AlterPartitionRequest, now: TimestampMs) -> Message:
        return self._made(alter_partition(self.image, self.configuration, body), now)

    def allocate_producer_ids(self, version: int, body: AllocateProducerIdsRequest, now: TimestampMs) -> Message:
        return self._made(allocate_producer_ids(self.image, body), now)

    def assign_replicas_to_dirs(self, version: int, body: AssignReplicasToDirsRequest, now: TimestampMs) -> Message:
        return self._made(assign_replicas_to_dirs(self.image, self.configuration, body), now)

    def elect_leaders(self, version: int, body: ElectLeadersRequest, now: TimestampMs) -> Message:
        return self._made(elect_leaders(self.image, self.configuration, body), now)

    def alter_partition_reassignments(
        self, version: int, body: AlterPartitionReassignmentsRequest, now: TimestampMs
    ) -> Message:
        return self._made(alter_partition_reassignments(self.image, self.configuration, body), now, is_atomic=True)

    def list_partition_reassignments(
        self, version: int, body: ListPartitionReassignmentsRequest, now: TimestampMs
    ) -> Message:
        return list_partition_reassignments(self.image, body)

    def unregister_broker(self, version: int, body: UnregisterBrokerRequest, now: TimestampMs) -> Message:
        self._append_batches(unregister_broker(self.image, self.configuration, body.broker_id), now)
        return UnregisterBrokerResponse()

    def describe_quorum(self, version: int, body: DescribeQuorumRequest, now: TimestampMs) -> Message:
        """The quorum as its leader describes it, also if this node is not the active controller yet, or no longer."""
        response = self._metadata_quorum.handle_describe_quorum(body, now)
        has_described = any(_members(response))
        return _describe_quorum(response, version, self._voters() if has_described else {})

    @property
    def _metadata_quorum(self) -> Quorum:
        """The quorum, if the log is a quorum's."""
        assert isinstance(self._quorum, Quorum)
        return self._quorum

    def update_features(self, version: int, body: UpdateFeaturesRequest, now: TimestampMs) -> Message:
        quorum = self._metadata_quorum
        decision = update_features(
            self.image, body, quorum.node, SUPPORTED_FEATURES, self._static_min_isr, quorum.kraft_version
        )
        level = raised_kraft_version(body)
        if decision.response.error_code == ErrorCode.NONE and level is not None:
            try:
                quorum.raise_kraft_version(level, now, validate_only=body.validate_only)
            except KafkaError as error:
                return refused(error)
        return self._made(decision, now, is_atomic=True)

    # ---- by itself

    def tick(self, now: TimestampMs) -> None:
        """Do the controller's own work that is due."""
        if not self.is_active or self._heartbeats is None:
            return
        deadline = self._heartbeats.next_deadline()
        if deadline is not None and deadline <= now and not self._is_fencing:
            self._fence_silent(now)
        if self._balances and now >= self._next_balance:
            self._next_balance = now + self._balance_interval_ms
            self._by_itself(lambda: balance_leaders(self.image, self.configuration), now)
        if now >= self._next_unclean:
            self._next_unclean = now + self._unclean_interval_ms
            self._by_itself(lambda: elect_unclean_leaders(self.image, self.configuration), now)
        if now >= self._next_expiry_check:
            self._next_expiry_check = now + self._expiry_check_interval_ms
            self._by_itself(lambda: remove_expired(self.image, now), now)

    def was_busy(self, ms: int, now: TimestampMs) -> None:
        """Extend the sessions by a time in which heartbeats waited for this node. Kafka receives them in a separate thread."""
        if self._heartbeats is not None:
            self._heartbeats.extend(ms, now)

    def deadlines(self) -> Iterable[TimestampMs | None]:
        """The times of `tick`'s work; None for never."""
        if not self.is_active or self._heartbeats is None:
            return ()
        silent = None if self._is_fencing else self._heartbeats.next_deadline()
        return silent, self._next_balance if self._balances else None, self._next_unclean, self._next_expiry_check

    def _by_itself(self, decide: Callable[[], Decision[Any]], now: TimestampMs) -> None:
        """Submit a decision without a request; after a disk failure a later turn retries it."""

        def make(then: TimestampMs) -> None:
            try:
                self._made(decide(), then)
            except KafkaError:
                return

        self._decisions.submit(make, lambda answer, then: None, lambda then: None, now)

    def _fence_silent(self, now: TimestampMs) -> None:
        """Fence the brokers whose sessions have expired, one per decision."""
        self._is_fencing = True
        fenced: list[int] = []

        def make(then: TimestampMs) -> None:
            broker = self._heartbeats.overdue(self.image, then) if self._heartbeats is not None else None
            if broker is not None:
                fenced.append(broker)
                try:
                    self._append_batches(fence_broker(self.image, self.configuration, broker), then)
                except KafkaError:
                    fenced.clear()

        def made(answer: Message | None, then: TimestampMs) -> None:
            self._is_fencing = False
            if fenced:
                self._fence_silent(then)

        def abandoned(then: TimestampMs) -> None:
            self._is_fencing = False

        self._decisions.submit(make, made, abandoned, now)


def _describe_quorum(response: DescribeQuorumResponse, version: int, voters: VoterEndpoints) -> DescribeQuorumResponse:
    """The response to DescribeQuorum; directories and voters' addresses only since version 2."""
    if version < FIRST_DESCRIBE_WITH_NODES:
        for member in _members(response):
            member.replica_directory_id = NO_UUID
    else:
        response.nodes = [
            DescribeQuorumResponse.Node(
                node_id=voter,
                listeners=[
                    DescribeQuorumResponse.Listener(name=each.listener, host=each.host, port=each.port)
                    for each in endpoints
                ],
            )
            for voter, endpoints in sorted(voters.items())
        ]
    return response


def _members(response: DescribeQuorumResponse) -> Iterable[DescribeQuorumResponse.ReplicaState]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield from partition.current_voters
            yield from partition.observers
