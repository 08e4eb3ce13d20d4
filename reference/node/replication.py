"""Replication between this node and others: fetchers, and AlterPartition.

As a follower: one fetcher for each broker that leads a followed partition, with one request in flight. As a leader: its ISR
proposals, sent to the active controller in one AlterPartition at a time, and the check for lagging members every half of
replica.lag.time.max.ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reference.node.context import Context
from reference.node.peers import AskController, Brokers
from reference.node.requests import Key
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.list_offsets import ListOffsetsResponse
from reference.protocol.primitives import AT_ONCE, NEVER, BrokerEpoch, NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.replication.fetcher import Fetched, Fetcher, FetchSettings
from reference.replication.follower import Following
from reference.replication.partition import Partition
from reference.replication.proposal import AcceptedIsr, Proposal
from reference.storage.errors import StorageError

FETCH_PURPOSE, PROPOSAL_PURPOSE = "fetch", "isr"
PROPOSE_AGAIN_MS = 50
"""The delay before an AlterPartition that no controller accepted is sent again (Kafka's AlterPartitionManager)."""

FETCH_TIMEOUT_MS = 30_000
"""The default of replica.socket.timeout.ms."""


class Replication:
    """The node's fetchers and proposals."""

    def __init__(
        self,
        context: Context,
        brokers: Brokers,
        ask_controller: AskController,
        broker_epoch: Callable[[], BrokerEpoch],
        settings: FetchSettings,
        now: TimestampMs,
    ) -> None:
        """`broker_epoch` is this broker's own."""
        self._context = context
        self._brokers = brokers
        self._ask_controller = ask_controller
        self._broker_epoch = broker_epoch
        self.accepted: Callable[[Partition, AlterPartitionResponse.PartitionData, TimestampMs], None] | None = None
        """Called when a proposal is accepted, if no record will follow."""
        self._settings = settings
        self._fetchers: dict[NodeId, Fetcher] = {}
        self._proposed: list[tuple[Partition, Proposal]] = []
        """The proposals of the AlterPartition in flight."""
        self._proposing: dict[Key, Partition] = {}
        """Partitions that may have a proposal to send."""
        self._propose_at: TimestampMs | None = None
        self._shrink_interval_ms = max(1, context.configuration.integer("replica.lag.time.max.ms") // 2)
        self._next_shrink = now + self._shrink_interval_ms

    # ---- following

    def on_role(self, partition: Partition) -> None:
        """Fetch a replica with a new role or leader epoch from its leader only."""
        leader = partition.state.leader if isinstance(partition.role, Following) else None
        for broker, fetcher in self._fetchers.items():
            if broker != leader:
                fetcher.leave(partition)
        if leader is None or leader < 0:
            return
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = Fetcher(leader, self._context.node, self._broker_epoch(), self._settings)
            self._fetchers[leader] = fetcher
        fetcher.follow(partition)

    @property
    def waits(self) -> bool:
        """Whether each fetcher has a request in flight, so that none has a deadline or a request to send."""
        return all(fetcher.waits for fetcher in self._fetchers.values())

    def on_given_up(self, partition: Partition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.leave(partition)
        self._proposing.pop(partition.key, None)

    def on_retention(self, partition: Partition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.look_again(partition)

    def fetch(self, now: TimestampMs) -> None:
        """Send the next requests of the fetchers."""
        for leader, fetcher in [*self._fetchers.items()]:
            fetcher.broker_epoch = self._broker_epoch()
            request = fetcher.next_request(now)
            if request is not None:
                self._ask(leader, fetcher, request, now)
            elif fetcher.is_idle:
                del self._fetchers[leader]

    def _ask(self, leader: NodeId, fetcher: Fetcher, request: Message, now: TimestampMs) -> None:
        def answered(answer: Message | None, then: TimestampMs) -> None:
            if self._fetchers.get(leader) is not fetcher:
                return
            if isinstance(answer, FetchResponse | ListOffsetsResponse):
                self._take(fetcher.answered(answer, then), then)
            else:
                self._take(fetcher.failed(then), then)
            self.fetch(then)

        timeout_ms = FETCH_TIMEOUT_MS + self._settings.max_wait_ms
        self._brokers.ask(leader, FETCH_PURPOSE, request, timeout_ms, answered, now)

    def _take(self, fetched: Fetched, now: TimestampMs) -> None:
        for note in fetched.notes:
            if isinstance(note.error, StorageError) and note.partition is not None:
                self._context.log("error", f"{note.partition.name}: {note.error}")
            else:
                name = f"{note.partition.name}: " if note.partition is not None else ""
                self._context.log("info", name + note.text)
        for partition in fetched.moved:
            self._context.purgatories.wake(partition, now)

    # ---- the ISR

    def may_propose(self, partition: Partition) -> None:
        """Queue the partition's proposal, if it has one to send."""
        leading = partition.leading
        if leading is not None and leading.pending is not None and not leading.pending_is_sent:
            self._proposing[partition.key] = partition

    def shrink(self, now: TimestampMs) -> None:
        """Propose to remove lagging members from ISRs."""
        for partition in self._context.replicas.partitions.values():
            if partition.leading is not None and partition.leading.shrink_isr(now):
                self.may_propose(partition)

    def propose(self, now: TimestampMs) -> None:
        """Send the proposals to the controller: one request at a time, with all proposals."""
        if self._proposed or not self._proposing or (self._propose_at is not None and now < self._propose_at):
            return
        self._propose_at = None
        partitions, self._proposing = self._proposing, {}
        for partition in partitions.values():
            proposal = partition.leading.take_proposal() if partition.leading is not None else None
            if proposal is not None:
                self._proposed.append((partition, proposal))
        if self._proposed:
            body = _alter_partition(self._context.node, self._broker_epoch(), self._proposed)
            self._ask_controller(PROPOSAL_PURPOSE, body, self._answered, now)

    def _answered(self, answer: Message | None, now: TimestampMs) -> None:
        proposed, self._proposed = self._proposed, []
        results: dict[tuple[object, int], AlterPartitionResponse.PartitionData] = {}
        error = ErrorCode.NETWORK_EXCEPTION
        if isinstance(answer, AlterPartitionResponse):
            error = _known(answer.error_code)
            results = {(each.topic_id, one.partition_index): one for each in answer.topics for one in each.partitions}
        for partition, proposal in proposed:
            self._settle(partition, proposal, error, results.get((partition.topic_id, partition.index)), now)
        self.propose(now)

    def _settle(
        self,
        partition: Partition,
        proposal: Proposal,
        error: ErrorCode,
        result: AlterPartitionResponse.PartitionData | None,
        now: TimestampMs,
    ) -> None:
        if error is ErrorCode.NONE:
            error = _known(result.error_code) if result is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        accepted = result if error is ErrorCode.NONE else None
        # After a loss of leadership, this is None or the role of a later epoch, which does not have the proposal.
        leading = partition.leading
        if leading is not None:
            leading.proposal_answered(proposal, error, now, _accepted_isr(accepted))
        if accepted is not None and self.accepted is not None:
            self.accepted(partition, accepted, now)
        leading = partition.leading
        if leading is not None:
            if leading.pending is None:
                leading.shrink_isr(now)
            if leading.pending == proposal and not leading.pending_is_sent:
                # The same proposal again, also after a refusal: a controller on this node answers before this returns.
                self._propose_at = now + PROPOSE_AGAIN_MS
        self.may_propose(partition)
        self._context.purgatories.wake(partition, now)

    # ---- time

    def tick(self, now: TimestampMs) -> None:
        """Do the work that is due."""
        if now >= self._next_shrink:
            self._next_shrink = now + self._shrink_interval_ms
            self.shrink(now)
        self.propose(now)
        self.fetch(now)

    def proposal_deadline(self) -> TimestampMs:
        """The time of `propose`'s next work."""
        return self._propose_at or AT_ONCE if self._proposing and not self._proposed else NEVER

    def deadlines(self) -> Iterable[TimestampMs | None]:
        """The times of `tick`'s other work; None for never."""
        yield self._next_shrink
        for fetcher in self._fetchers.values():
            yield fetcher.next_deadline()


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _accepted_isr(result: AlterPartitionResponse.PartitionData | None) -> AcceptedIsr | None:
    return result and AcceptedIsr(result.leader_epoch, result.partition_epoch, tuple(result.isr))


def _alter_partition(
    node: NodeId, broker_epoch: BrokerEpoch, proposed: Iterable[tuple[Partition, Proposal]]
) -> AlterPartitionRequest:
    topics: dict[object, AlterPartitionRequest.TopicData] = {}
    for partition, proposal in proposed:
        topic = topics.setdefault(partition.topic_id, AlterPartitionRequest.TopicData(topic_id=partition.topic_id))
        topic.partitions.append(
            AlterPartitionRequest.PartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    AlterPartitionRequest.BrokerState(broker_id=member, broker_epoch=epoch)
                    for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                ],
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=node, broker_epoch=broker_epoch, topics=[*topics.values()])
