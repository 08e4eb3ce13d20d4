"""Leading: appending, committing, and serving those that fetch. See `quorum` for the whole.

`Leader` is made when an election is won and thrown away with its epoch, and with it what it knows of the other members, the
fetches that wait, and the change of voters that is under way (`quorum_changing` has the requests for one).
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
"""Fetches that wait at a leader; more are answered at once, with nothing."""


@dataclass(slots=True)
class Waiting:
    """A fetch that the leader has nothing for yet."""

    token: object
    request: FetchRequest
    partition: FetchRequest.FetchPartition
    deadline: TimestampMs


@dataclass(slots=True)
class VoterChange:
    """A voter that is being added or removed: one at a time (KIP-853)."""

    request: AddRaftVoterRequest | RemoveRaftVoterRequest
    token: object
    """The caller's, for the response."""
    deadline: TimestampMs
    offset: Offset | None = None
    """Where the new voters are in the log; None before."""


def become_leader(member: Member, granting: set[NodeId], now: TimestampMs) -> None:
    """Lead the epoch: its first record makes all before it committable."""
    others = member.others
    leader = Leader(
        member,
        epoch_start=member.log.end,
        check_quorum_at=now + member.settings.check_quorum_ms if others else NEVER,
        begin_epoch_at=now if others else NEVER,
        members=Members({voter: Progress(member.voters.directory_of(voter)) for voter in others}),
    )
    # On the disk before the epoch's first record: a restarted leader must know that it led, or it would lead the epoch
    # again.
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
    """A member that leads an epoch: what it keeps, and its steps."""

    role: ClassVar[Role] = Role.LEADER
    member: Member
    epoch_start: Offset
    """Where its epoch began: behind it is the epoch's first record."""
    check_quorum_at: TimestampMs
    begin_epoch_at: TimestampMs
    members: Members
    """The others."""
    change: VoterChange | None = None
    """The voter that is being added or removed."""
    reported: dict[NodeId, Voter] = field(default_factory=dict[NodeId, Voter])
    """What voters of the configuration say of themselves (UpdateRaftVoter), until kraft.version is raised."""
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    """The fetches that wait for records."""

    @property
    def deadline(self) -> TimestampMs:
        change = NEVER if self.change is None else self.change.deadline
        return min(self.check_quorum_at, self.begin_epoch_at, change)

    @property
    def is_ready(self) -> bool:
        """Whether it may decide: a record of its epoch is committed, so it knows all that was ever committed."""
        # Only a record of the leader's own epoch commits those before it (Raft, figure 8): until then the image may
        # lack decisions.
        return self.member.state is self and self.member.high_watermark > self.epoch_start

    def lead(self, now: TimestampMs) -> None:
        """Do what is due: resign without a majority, or report the epoch to voters that do not fetch."""
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
        """Lead no longer, and inform the others, so that they need not wait for a timeout."""
        member = self.member
        ends = {voter: progress.end for voter, progress in self.members.voters.items()}
        successors = sorted(ends, key=lambda voter: (-ends[voter], voter))
        member.change(Resigned(member.election_deadline(now), successors, set(member.others)), member.stored)

    def end(self) -> None:
        """Another role has begun: whatever waits here is refused, so that its senders look for the next leader."""
        member = self.member
        for waiting in self.waiting:
            refusal = messages.fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, member.epoch, member.stored.leader)
            member.answers.append((waiting.token, member.with_leader(refusal)))
        self.waiting = []
        self.end_change(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- appending

    @contextmanager
    def _resigned_in_doubt(self, now: TimestampMs) -> Generator[None]:
        """An append. Errors: KafkaError KAFKA_STORAGE_ERROR where the disk refuses."""
        member, end = self.member, self.member.log.end
        try:
            yield
        except StorageError as error:
            member.say_error(error.message)
            if member.log.end != end:
                # What may be there or not must not be built upon: another leader finds out.
                member.attempt(lambda: self.resign(now), now)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error

    def append(self, records: Sequence[Message], now: TimestampMs, level: int = NEWEST_LEVEL) -> Offset:
        """As `Quorum.append`, by a leader that is ready."""
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
        """Commit what a majority has, once that includes a record of this epoch."""
        member = self.member
        ends = [max(FIRST_OFFSET, progress.end) for progress in self.members.voters.values()]
        # What it has flushed, and not its log's end: a loss of power would take from it what was committed by its vote.
        if member.is_voter:
            ends.append(member.log.durable_end)
        # Never by counting replicas of an earlier epoch's records alone: another leader could still replace them (Raft, 5.4.2).
        moved = next_commit(member.high_watermark, majority_end(ends), self.epoch_start)
        if moved != member.high_watermark:
            member.high_watermark = moved
            member.trace_step("AdvanceHighWatermark")
            self.answer_waiting()
            self._change_committed(now)

    # ---- voters

    def own_voter(self) -> Voter | None:
        """What the voters' record is to say of this node; None where the node is no controller."""
        endpoints = self.member.settings.endpoints
        return Voter(self.member.node, self.member.directory, endpoints, LEVELS) if endpoints else None

    def voters_at_start(self) -> Sequence[tuple[ControlType, Message]]:
        """What comes with the first record of an epoch: the voters, where the log lacks them or this node's entry is old."""
        own, history, node = self.own_voter(), self.member.log.history, self.member.node
        if history.level == 0:
            return []
        updated = history.voters if own is None else history.voters.updated(own) or history.voters
        if history.offset >= 0 and updated.get(node) == history.voters.get(node):
            return []
        return voter_records(Entry(self.member.log.end, updated, history.level))

    def append_voters(self, voters: VoterSet, now: TimestampMs, change: VoterChange | None = None) -> None:
        """Append a new set, and count by it from now on; `change` is waited for until the set is committed.

        Errors: KafkaError KAFKA_STORAGE_ERROR, and nothing is waited for.
        """
        end = self.member.log.end
        with self._resigned_in_doubt(now):
            self.member.log.append_voters(voters, self.member.epoch, now)
        if change is not None:
            change.offset, self.change = end, change
        self.count_by(voters, now)
        self._appended("AppendVoters", now, voters=sorted(voters.ids))

    def append_level(self, voters: VoterSet, level: int, now: TimestampMs) -> None:
        """Append what kraft.version is raised to, with the voters; their progress, of no known directory, is forgotten.

        Errors: KafkaError KAFKA_STORAGE_ERROR.
        """
        with self._resigned_in_doubt(now):
            self.member.log.append_voters(voters, self.member.epoch, now, level)
        self.members.voters = {}
        self.count_by(voters, now)
        self._appended("AppendRecord", now)  # the same nodes vote as before

    def count_by(self, voters: VoterSet, now: TimestampMs) -> None:
        """Count by a new set of voters from now on."""
        self.members.count_by(voters, self.member.others)
        if not self.members.voters:
            self.check_quorum_at = self.begin_epoch_at = NEVER
        elif self.check_quorum_at == NEVER:
            self.check_quorum_at = TimestampMs(now + self.member.settings.check_quorum_ms)
            self.begin_epoch_at = now

    def _change_committed(self, now: TimestampMs) -> None:
        """The high watermark has moved: the change may be over, and this leader no voter any more."""
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
        """Answer the request for the change that is under way, if there is one."""
        change, self.change = self.change, None
        if change is not None:
            self.member.answers.append((change.token, messages.change_response(change.request, code, message)))

    # ---- fetches of others

    def take_fetch(
        self, request: FetchRequest, partition: FetchRequest.FetchPartition, token: object, now: TimestampMs
    ) -> None:
        """Answer a fetch that has just come, or let it wait."""
        response, urgent = self._read_for(partition, request, messages.replica_of(request), now)
        # By this fetch a leader that was removed may have resigned: nothing waits for it any more.
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
        """The answer to a fetch as of now, and whether there is reason to send it; `now` when the fetch has just come."""
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
            # A fetch from `fetch_offset` says that all before is durable there: noted once, when it comes, and not when it is
            # read again after waiting.
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
        """A member has everything below `end`, durably: remember it, and commit what a majority has now."""
        member, members = self.member, self.members
        if replica in members.voters and member.voters.is_voter(replica, directory):
            members.voters[replica].fetched(end, member.log.end, now)
            member.trace_step("AnswerFetch", {"from": replica, "to": member.node, "end": end})
            self.note_following(replica, directory, now)
            self.advance_high_watermark(now)
        # An observer's end is kept and commits nothing; also a voter's whose directory is another: it has lost the
        # voter's log.
        elif replica >= 0:
            members.observer_fetched(replica, directory, end, member.log.end, now)
            if not member.is_static:  # it counts from the moment in which it becomes a voter
                member.trace_step("AnswerFetch", {"from": replica, "to": member.node, "end": end})

    def note_following(self, replica: NodeId, directory: UUID, now: TimestampMs) -> None:
        """A voter has asked for something: when a majority has, the check-quorum timer begins again."""
        member, members = self.member, self.members
        if replica not in members.voters or not member.voters.is_voter(replica, directory):
            return
        members.fetched.add(replica)
        # The leader counts for itself only while it is a voter: it may be removing itself (KIP-853).
        if len(members.fetched) >= member.voters.majority - member.is_voter:
            members.fetched.clear()
            self.check_quorum_at = now + member.settings.check_quorum_ms

    def answer_waiting(self) -> None:
        """Answer the fetches for which there is something now."""
        still: list[Waiting] = []
        for waiting in self.waiting:
            response, urgent = self._read_for(waiting.partition, waiting.request)
            if urgent:
                self.member.answers.append((waiting.token, response))
            else:
                still.append(waiting)
        self.waiting = still

    def answer_overdue(self, now: TimestampMs) -> None:
        """Answer the fetches that have waited for as long as they may."""
        for waiting in [waiting for waiting in self.waiting if waiting.deadline <= now]:
            self.waiting.remove(waiting)
            self.member.answers.append((waiting.token, self._read_for(waiting.partition, waiting.request)[0]))

    # ---- snapshots for others

    def send_piece(
        self, request: FetchSnapshotRequest, asked: FetchSnapshotRequest.PartitionSnapshot, now: TimestampMs
    ) -> FetchSnapshotResponse:
        """A piece of a snapshot, from a position on."""
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
        """How far every member is."""
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
    """The error of a fetch; NONE for one that this leader serves."""
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
