"""The leader's role: appends, commits, and serves fetches. See `quorum` for the whole.

A `Leader` exists for one epoch, from the election to its end, with all state of that epoch: the other members' progress,
delayed fetches, and the pending change of voters (`quorum_changing` has the requests for one).
Source: KIP-595, KIP-630, KIP-1166; org.apache.kafka.raft.LeaderState.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.metadata_records import NEWEST_LEVEL
from reference.controller.quorum_log import Verdict
from reference.controller.quorum_member import PARTITION_NAME, Member
from reference.controller.quorum_progress import Members, Progress, described
from reference.controller.quorum_roles import NEVER, Resigned, Role
from reference.controller.quorum_rules import majority_end, next_commit
from reference.controller.quorum_snapshots import BOOTSTRAP, SnapshotId
from reference.controller.quorum_state import QuorumState
from reference.controller.quorum_voters import LEVELS, Entry, Voter, VoterSet, voter_records
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.primitives import FIRST_OFFSET, NO_NODE, NO_OFFSET, NodeId, Offset, TimestampMs
from reference.protocol.records.control import ControlType
from reference.protocol.records.errors import RecordsError
from reference.protocol.schema import Message
from reference.storage.errors import LogError, StorageError

MAX_WAITING = 1000
"""The most delayed fetches of a leader; further ones are answered at once, without records."""


@dataclass(slots=True)
class Waiting:
    """A fetch for which the leader has no records yet."""

    token: object
    request: FetchRequest
    partition: FetchRequest.FetchPartition
    deadline: TimestampMs


@dataclass(slots=True)
class VoterChange:
    """A voter that is being added or removed; at most one at a time (KIP-853)."""

    request: AddRaftVoterRequest | RemoveRaftVoterRequest
    token: object
    """The request's token, for the response."""
    deadline: TimestampMs
    offset: Offset | None = None
    """The offset of the new voters' record; None before its append."""


def become_leader(member: Member, granting: set[NodeId], now: TimestampMs) -> None:
    """Lead the epoch: its first record makes all records before it committable."""
    others = member.others
    leader = Leader(
        member,
        epoch_start=member.log.end,
        check_quorum_at=now + member.settings.check_quorum_ms if others else NEVER,
        begin_epoch_at=now if others else NEVER,
        members=Members({voter: Progress(member.voters.directory_of(voter)) for voter in others}),
    )
    # Stored before the epoch's first record: a restarted leader must know that it led, or it would lead the epoch again.
    member.change(leader, QuorumState(member.node, member.epoch, member.stored.voted))
    member.trace_step("BecomeLeader")
    try:
        more = leader.voters_at_start()
        member.log.begin_epoch(member.epoch, member.node, member.voters.ids, sorted(granting), now, more)
    except StorageError:
        leader.resign(now)
        raise
    member.trace_step("AppendRecord")
    leader.advance_high_watermark(now)


@dataclass(slots=True, eq=False)
class Leader:
    """The role of a leader in one epoch: its state and its steps."""

    role: ClassVar[Role] = Role.LEADER
    member: Member
    epoch_start: Offset
    """The log end offset at the beginning of its epoch, where the epoch's first record is."""
    check_quorum_at: TimestampMs
    begin_epoch_at: TimestampMs
    members: Members
    """The progress of the other members."""
    change: VoterChange | None = None
    """The pending change of a voter."""
    reported: dict[NodeId, Voter] = field(default_factory=dict[NodeId, Voter])
    """The entries that the voters of the configuration reported (UpdateRaftVoter), until kraft.version is raised."""
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    """The delayed fetches."""

    @property
    def deadline(self) -> TimestampMs:
        change = NEVER if self.change is None else self.change.deadline
        return min(self.check_quorum_at, self.begin_epoch_at, change)

    @property
    def is_ready(self) -> bool:
        """Whether this member may decide: a record of its epoch is committed, so it has all committed records."""
        # Only a record of the leader's own epoch commits those before it (Raft, figure 8). Before, the image may lack
        # decisions.
        return self.member.state is self and self.member.high_watermark > self.epoch_start

    def lead(self, now: TimestampMs) -> None:
        """Do the work that is due: resign without a majority's fetches, or report the epoch to voters that do not fetch."""
        member = self.member
        self.expire_change(now)
        if now >= self.check_quorum_at:
            member.say("warning", f"{PARTITION_NAME}: no majority fetches in epoch {member.epoch}: resigned")
            self.resign(now)
        elif now >= self.begin_epoch_at:
            every_ms = member.settings.begin_epoch_ms
            self.begin_epoch_at = now + every_ms
            for voter, progress in self.members.voters.items():
                silent = progress.last_fetch < 0 or now - progress.last_fetch >= every_ms
                if silent and member.requests.may_ask(voter):
                    request = messages.meant_for(messages.begin_request(member.asker, voter), progress.directory)
                    member.name_itself(request)
                    member.send(voter, request, now)

    def resign(self, now: TimestampMs) -> None:
        """Stop leading, and inform the other voters, so that they need not wait for a timeout."""
        member = self.member
        ends = {voter: progress.end for voter, progress in self.members.voters.items()}
        successors = sorted(ends, key=lambda voter: (-ends[voter], voter))
        member.change(Resigned(member.election_deadline(now), successors, set(member.others)), member.stored)

    def end(self) -> None:
        """Refuse all pending requests when another role begins, so that their senders look for the next leader."""
        member = self.member
        for waiting in self.waiting:
            refusal = messages.fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, member.epoch, member.stored.leader)
            member.answers.append((waiting.token, member.with_leader(refusal)))
        self.waiting = []
        self.end_change(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- appending

    @contextmanager
    def _resigned_in_doubt(self, now: TimestampMs) -> Generator[None]:
        """A block that appends; resign if the log may have changed. Errors: KafkaError KAFKA_STORAGE_ERROR after a disk
        failure."""
        member, end = self.member, self.member.log.end
        try:
            yield
        except StorageError as error:
            member.say_error(error.message)
            if member.log.end != end:
                # The records may or may not be durable, so nothing may be appended after them: another leader decides.
                member.attempt(lambda: self.resign(now), now)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error

    def append(self, records: Sequence[Message], now: TimestampMs, level: int = NEWEST_LEVEL) -> Offset:
        """`Quorum.append`, for a leader that is ready."""
        member = self.member
        try:
            with self._resigned_in_doubt(now):
                first = member.log.append(records, member.epoch, now, level)
        except (RecordsError, LogError) as error:
            raise KafkaError(error.code, error.message) from error
        self._appended("AppendRecord", now)
        return first

    def _appended(self, step: str, now: TimestampMs, **arguments: object) -> None:
        self.member.trace_step(step, arguments)
        self.advance_high_watermark(now)
        self.answer_waiting()

    def advance_high_watermark(self, now: TimestampMs) -> None:
        """Commit the records that a majority has, once they include a record of this epoch."""
        member = self.member
        ends = [max(FIRST_OFFSET, progress.end) for progress in self.members.voters.values()]
        # Its flushed end, not its log end: otherwise a power loss could remove records that were committed by its vote.
        if member.is_voter:
            ends.append(member.log.durable_end)
        # Never by counting replicas of an earlier epoch's records alone: another leader could still replace them (Raft,
        # 5.4.2).
        moved = next_commit(member.high_watermark, majority_end(ends), self.epoch_start)
        if moved != member.high_watermark:
            member.high_watermark = moved
            member.trace_step("AdvanceHighWatermark")
            self.answer_waiting()
            self._change_committed(now)

    # ---- voters

    def own_voter(self) -> Voter | None:
        """The entry of this node in the voters' record; None if the node is not a controller."""
        endpoints = self.member.settings.endpoints
        return Voter(self.member.node, self.member.directory, endpoints, LEVELS) if endpoints else None

    def voters_at_start(self) -> Sequence[tuple[ControlType, Message]]:
        """The control records for an epoch's first batch: the voters, if the log lacks them or this node's entry is out of
        date."""
        own, history, node = self.own_voter(), self.member.log.history, self.member.node
        if history.level == 0:
            return []
        updated = history.voters if own is None else history.voters.updated(own) or history.voters
        if history.offset >= 0 and updated.get(node) == history.voters.get(node):
            return []
        return voter_records(Entry(self.member.log.end, updated, history.level))

    def append_voters(self, voters: VoterSet, now: TimestampMs, change: VoterChange | None = None) -> None:
        """Append a new voter set, and count by it from now on; `change` is pending until the set is committed.

        Errors: KafkaError KAFKA_STORAGE_ERROR; then no change is pending.
        """
        end = self.member.log.end
        with self._resigned_in_doubt(now):
            self.member.log.append_voters(voters, self.member.epoch, now)
        if change is not None:
            change.offset, self.change = end, change
        self.count_by(voters, now)
        self._appended("AppendVoters", now, voters=sorted(voters.ids))

    def append_level(self, voters: VoterSet, level: int, now: TimestampMs) -> None:
        """Append the raised kraft.version with the voters. Their progress is reset, because their directories were unknown.

        Errors: KafkaError KAFKA_STORAGE_ERROR.
        """
        with self._resigned_in_doubt(now):
            self.member.log.append_voters(voters, self.member.epoch, now, level)
        self.members.voters = {}
        self.count_by(voters, now)
        self._appended("AppendRecord", now)  # the same nodes vote as before

    def count_by(self, voters: VoterSet, now: TimestampMs) -> None:
        """Use a new voter set for majorities from now on."""
        self.members.count_by(voters, self.member.others)
        if not self.members.voters:
            self.check_quorum_at = self.begin_epoch_at = NEVER
        elif self.check_quorum_at == NEVER:
            self.check_quorum_at = TimestampMs(now + self.member.settings.check_quorum_ms)
            self.begin_epoch_at = now

    def _change_committed(self, now: TimestampMs) -> None:
        """End the pending change if its record is committed, and resign if this leader is then no voter any more."""
        member, change = self.member, self.change
        if change is not None and change.offset is not None and change.offset < member.high_watermark:
            self.end_change(ErrorCode.NONE)
        if not member.is_voter and member.log.history.offset < member.high_watermark:
            member.say("info", f"this leader is no voter any more: resigned from epoch {member.epoch}")
            self.resign(now)

    def expire_change(self, now: TimestampMs) -> None:
        if self.change is not None and now >= self.change.deadline:
            self.end_change(ErrorCode.REQUEST_TIMED_OUT)

    def end_change(self, code: ErrorCode | int, message: str | None = None) -> None:
        """Answer the request for the pending change, if there is one."""
        change, self.change = self.change, None
        if change is not None:
            self.member.answers.append((change.token, messages.change_response(change.request, code, message)))

    # ---- fetches of others

    def take_fetch(
        self, request: FetchRequest, partition: FetchRequest.FetchPartition, token: object, now: TimestampMs
    ) -> None:
        """Answer a fetch that has just arrived, or delay it."""
        response, urgent = self._read_for(partition, request, messages.replica_of(request), now)
        # This fetch may have committed the removal of this leader, which then resigned: no fetch is delayed any more.
        has_ended = self.member.state is not self
        if urgent or has_ended or request.max_wait_ms == 0 or len(self.waiting) >= MAX_WAITING:
            self.member.answers.append((token, response))
        else:
            self.waiting.append(Waiting(token, request, partition, now + request.max_wait_ms))

    def _read_for(
        self,
        partition: FetchRequest.FetchPartition,
        request: FetchRequest,
        replica: NodeId = NO_NODE,
        now: TimestampMs | None = None,
    ) -> tuple[FetchResponse, bool]:
        """The present response to a fetch, and whether it must be sent now; `now` is given if the fetch has just arrived."""
        member = self.member
        error = fetch_error(member, partition, request.max_wait_ms, replica)
        if error is not ErrorCode.NONE:
            return refuse_fetch(member, error), True
        compared = member.log.compare(partition.fetch_offset, partition.last_fetched_epoch)
        records = b""
        if compared.verdict is Verdict.IN_LINE:
            try:
                max_bytes = max(0, min(request.max_bytes, member.settings.fetch_max_bytes))
                records = member.log.read(partition.fetch_offset, max_bytes)
            except StorageError as failure:
                member.say_error(failure.message)
                return messages.fetch_response(ErrorCode.KAFKA_STORAGE_ERROR, member.epoch, member.node), True
            # A fetch from `fetch_offset` acknowledges all records before it. Its progress is recorded once, on arrival, not
            # when a delayed fetch is read again.
            if now is not None:
                self.answer_fetch(replica, partition.replica_directory_id, partition.fetch_offset, now)
        high_watermark = member.high_watermark if member.high_watermark > self.epoch_start else NO_OFFSET
        response = messages.fetch_response(
            ErrorCode.NONE,
            member.epoch,
            member.node,
            high_watermark=high_watermark,
            log_start=member.log.start,
            records=records,
            compared=compared,
        )
        news = compared.verdict is not Verdict.IN_LINE or bool(records) or partition.high_watermark < high_watermark
        return member.with_leader(response), news

    def answer_fetch(self, replica: NodeId, directory: UUID, end: Offset, now: TimestampMs) -> None:
        """Record that a member has all records below `end` durably, and advance the high watermark."""
        member, members = self.member, self.members
        if replica in members.voters and member.voters.is_voter(replica, directory):
            members.voters[replica].fetched(end, member.log.end, now)
            member.trace_step("AnswerFetch", {"from": replica, "to": member.node, "end": end})
            self.note_following(replica, directory, now)
            self.advance_high_watermark(now)
        # An observer's end is recorded and commits nothing; so is that of a voter with another directory, which has lost its
        # log.
        elif replica >= 0:
            members.observer_fetched(replica, directory, end, member.log.end, now)
            if not member.is_static:  # it counts when the member becomes a voter
                member.trace_step("AnswerFetch", {"from": replica, "to": member.node, "end": end})

    def note_following(self, replica: NodeId, directory: UUID, now: TimestampMs) -> None:
        """Record a voter's request: after requests of a majority the check-quorum timer restarts."""
        member, members = self.member, self.members
        if replica not in members.voters or not member.voters.is_voter(replica, directory):
            return
        members.fetched.add(replica)
        # The leader counts for itself only while it is a voter: it may be removing itself (KIP-853).
        if len(members.fetched) >= member.voters.majority - member.is_voter:
            members.fetched.clear()
            self.check_quorum_at = now + member.settings.check_quorum_ms

    def answer_waiting(self) -> None:
        """Answer the delayed fetches for which the leader now has records or a new high watermark."""
        still: list[Waiting] = []
        for waiting in self.waiting:
            response, urgent = self._read_for(waiting.partition, waiting.request)
            if urgent:
                self.member.answers.append((waiting.token, response))
            else:
                still.append(waiting)
        self.waiting = still

    def answer_overdue(self, now: TimestampMs) -> None:
        """Answer the delayed fetches whose maximum wait is over."""
        for waiting in [waiting for waiting in self.waiting if waiting.deadline <= now]:
            self.waiting.remove(waiting)
            self.member.answers.append((waiting.token, self._read_for(waiting.partition, waiting.request)[0]))

    # ---- snapshots for others

    def send_piece(
        self, request: FetchSnapshotRequest, asked: FetchSnapshotRequest.PartitionSnapshot, now: TimestampMs
    ) -> FetchSnapshotResponse:
        """The response with a piece of a snapshot, from a position on."""
        try:
            return self._piece(request, asked, now)
        except StorageError as failure:
            self.member.say_error(failure.message)
            return refuse_piece(self.member, ErrorCode.KAFKA_STORAGE_ERROR)

    def _piece(
        self, request: FetchSnapshotRequest, asked: FetchSnapshotRequest.PartitionSnapshot, now: TimestampMs
    ) -> FetchSnapshotResponse:
        member, snapshots = self.member, self.member.log.snapshots
        id = SnapshotId(asked.snapshot_id.epoch, asked.snapshot_id.end_offset)
        if id not in snapshots.ids or id == BOOTSTRAP:
            return refuse_piece(member, ErrorCode.SNAPSHOT_NOT_FOUND)
        size = snapshots.size_bytes(id)
        if not 0 <= asked.position < size:
            return refuse_piece(member, ErrorCode.POSITION_OUT_OF_RANGE)
        length = max(1, min(request.max_bytes, member.settings.snapshot_chunk_bytes))
        data = snapshots.read(id, asked.position, length)
        self.note_following(request.replica_id, asked.replica_directory_id, now)
        response = messages.fetch_snapshot_response(
            ErrorCode.NONE, member.epoch, member.node, id=id, size=size, position=asked.position, data=data
        )
        return member.with_leader(response)

    # ---- describing

    def describe(self, now: TimestampMs) -> DescribeQuorumResponse.PartitionData:
        """The log end offsets of all members."""
        member = self.member
        self.members.drop_silent(now)
        voters = {(id, progress.directory): progress for id, progress in self.members.voters.items()}
        own = DescribeQuorumResponse.ReplicaState(
            replica_id=member.node,
            replica_directory_id=member.voters.directory_of(member.node),
            log_end_offset=member.log.end,
            last_fetch_timestamp=now,
            last_caught_up_timestamp=now,
        )
        return DescribeQuorumResponse.PartitionData(
            leader_id=member.node,
            leader_epoch=member.epoch,
            high_watermark=member.high_watermark if self.is_ready else NO_OFFSET,
            current_voters=[*([own] if member.is_voter else ()), *described(voters)],
            observers=described(self.members.observers),
        )


# ---- refusals, of a member in whichever role


def fetch_error(member: Member, partition: FetchRequest.FetchPartition, max_wait_ms: int, replica: NodeId) -> ErrorCode:
    """The error code of a fetch; NONE if this leader serves it."""
    epoch = partition.current_leader_epoch
    if (
        max_wait_ms < 0
        or partition.fetch_offset < 0
        or partition.last_fetched_epoch < 0
        or partition.last_fetched_epoch > epoch
        or replica == member.node
    ):
        return ErrorCode.INVALID_REQUEST
    return member.leader_error(epoch)


def refuse_fetch(member: Member, error: ErrorCode) -> FetchResponse:
    return member.with_leader(messages.fetch_response(error, member.epoch, member.stored.leader))


def refuse_piece(member: Member, error: ErrorCode) -> FetchSnapshotResponse:
    return member.with_leader(messages.fetch_snapshot_response(error, member.epoch, member.stored.leader))
