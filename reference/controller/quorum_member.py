"""The part of a quorum member that all roles share: its log, its stored state, its open requests, and its role.

`quorum_electing`, `quorum_leading` and `quorum_following` have the work of the roles; `quorum` is a member with its role, and
explains the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.metadata_records import NEWEST_LEVEL
from reference.controller.quorum_addresses import Address, Addresses, add_leader
from reference.controller.quorum_log import QuorumLog
from reference.controller.quorum_messages import Asker
from reference.controller.quorum_requests import OpenRequests
from reference.controller.quorum_roles import OBSERVER_ROLES, TRANSITIONS, Role, RoleState
from reference.controller.quorum_settings import QuorumSettings
from reference.controller.quorum_snapshots import SnapshotId
from reference.controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from reference.controller.quorum_voters import VoterSet
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NO_NODE, NO_UUID, Chance, LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.schema import Message
from reference.replication.partition import Trace
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log import Log
from reference.storage.log_directory import Logger

MAX_EPOCH = LeaderEpoch(2**31 - 1)
"""No leader can have this epoch, because no epoch would follow it."""

STORAGE_PAUSE_MS = 1000
"""The pause in all work after a disk failure."""

PARTITION_NAME = "__cluster_metadata-0"

Reply = TypeVar("Reply")


def say_nothing(level: str, message: str) -> None:
    pass


@dataclass(eq=False)
class Member:
    """One voter or observer, without the work of its roles."""

    node: NodeId
    cluster_id: str
    settings: QuorumSettings
    disk: Disk
    records_log: Log
    """The log of `__cluster_metadata-0`, whose folder has `quorum-state`; other components only read it."""
    chance: Chance
    now: InitVar[TimestampMs]
    _: KW_ONLY
    directory: UUID = NO_UUID
    """The id of the data folder."""
    say: Logger = say_nothing
    trace: Trace | None = None
    log: QuorumLog = field(init=False)
    addresses: Addresses = field(init=False)
    requests: OpenRequests = field(init=False)
    """The open requests of this role."""
    high_watermark: Offset = field(init=False)
    """All records below this offset are committed."""
    stored: QuorumState = field(init=False)
    """Epoch, leader and vote, as stored on disk."""
    state: RoleState = field(init=False)
    """The state of the current role."""
    snapshot_notice: bool = field(init=False)
    """Whether a snapshot has replaced records."""
    answers: list[tuple[object, Message]] = field(init=False, default_factory=list[tuple[object, Message]])
    """Responses for `take_answers`, each with its request's token."""
    _sends: list[tuple[NodeId, Message]] = field(init=False, default_factory=list[tuple[NodeId, Message]])
    _paused_until: TimestampMs | None = field(init=False, default=None)

    def __post_init__(self, now: TimestampMs) -> None:
        """Load the stored state; the role is set later. Errors: StorageError; CorruptFile that names the file."""
        self.log = QuorumLog(self.disk, self.records_log, now, self.settings.voters)
        self.addresses = Addresses(self.settings)
        self.requests = OpenRequests(self.settings.request_timeout_ms, self.settings.retry_backoff_ms)
        self.high_watermark = self.log.known_committed
        self.snapshot_notice = self.log.snapshots.latest is not None
        self.stored = self._read_state()

    def _read_state(self) -> QuorumState:
        """The stored state; with the log's last epoch if that is newer, because then the file was lost."""
        stored = read_quorum_state(self.disk, self.records_log.folder)
        # In an epoch below those of its own log it could vote again where a leader was elected long ago.
        if stored.leader_epoch < self.log.last_epoch:
            return QuorumState(leader_epoch=self.log.last_epoch)
        return stored

    # ---- voters

    @property
    def voters(self) -> VoterSet:
        """The latest voters in the log, committed or not; those of the configuration if the log has none."""
        return self.log.history.voters

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.node, self.directory)

    @property
    def may_stand(self) -> bool:
        """Whether it may be a candidate: it is a voter, or its removal is not known to be committed.

        Nodes without the removal's record use the former voters, and vote only for a log that is as long as theirs. If only
        the removed member has the record, no other can win, and commit the record. Its own vote does not count.
        """
        history = self.log.history
        return self.is_voter or (
            history.offset >= self.high_watermark and history.before.is_voter(self.node, self.directory)
        )

    @property
    def others(self) -> tuple[NodeId, ...]:
        """The voters except this node."""
        return tuple(voter for voter in self.voters.ids if voter != self.node)

    @property
    def is_static(self) -> bool:
        """Whether the voters are those of the configuration; requests of other nodes are then refused."""
        return self.kraft_version == 0 and bool(self.settings.voters)

    @property
    def kraft_version(self) -> int:
        """1 if the voters are in the log and can change (KIP-853)."""
        return self.log.history.level

    @property
    def is_only_voter(self) -> bool:
        return self.is_voter and len(self.voters) == 1

    def address_of(self, peer: NodeId) -> Address | None:
        """The address of a node's controller; None if this member does not know it."""
        return self.addresses.of(peer, self.voters, self.stored.leader)

    @property
    def leader_address(self) -> Address | None:
        """The address of the known leader; None with the voters of the configuration."""
        if self.is_static:
            return None
        leader = self.stored.leader
        return self.addresses.own if leader == self.node else self.address_of(leader)

    def with_leader(self, response: Reply) -> Reply:
        """Add the leader's address to a response."""
        add_leader(response, self.stored.leader, self.leader_address)
        return response

    def voter_response(self, form: type[messages.VoterResponse], error: ErrorCode) -> messages.VoterResponse:
        """The response to a leader's report, with this member's epoch and leader."""
        return self.with_leader(messages.voter_response(form, error, self.epoch, self.stored.leader))

    def name_itself(self, request: Message) -> None:
        """Add this leader's endpoints to a request, for members whose log does not have them."""
        if not self.is_static:
            self.addresses.add_own(request)

    # ---- questions

    @property
    def asker(self) -> Asker:
        """The sender fields of this member's requests."""
        return Asker(self.cluster_id, self.node, self.directory, self.epoch)

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def epoch(self) -> LeaderEpoch:
        return self.stored.leader_epoch

    @property
    def leader(self) -> NodeId:
        """The known leader; -1 if there is none."""
        return NO_NODE if self.role is Role.RESIGNED else self.stored.leader

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_broken(self) -> bool:
        """Whether the disk failed so that only a restart helps: the member stops its work, and answers requests with an error."""
        return self.log.is_broken

    @property
    def log_start_offset(self) -> Offset:
        return self.log.start

    @property
    def log_end_offset(self) -> Offset:
        return self.log.end

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.log.snapshots.latest

    def committed(self, start: Offset) -> Iterator[tuple[Offset, Message]]:
        """The committed metadata records from an offset on, each with its offset; without control records.

        Errors: OffsetOutOfRange below the log's start, where a snapshot replaces the log; CorruptFile that names the log and
        the offset; StorageError.
        """
        return self.log.records(start, self.high_watermark)

    def appended(self, start: Offset) -> Iterator[tuple[Offset, Message]]:
        """As `committed`, with the uncommitted records too."""
        return self.log.records(start, self.log.end)

    # ---- snapshots

    def snapshot_records(self) -> Iterator[Message]:
        """The records of the latest snapshot; none if there is none. Errors: CorruptFile that names it, StorageError."""
        latest = self.log.snapshots.latest
        return iter(()) if latest is None else self.log.snapshots.records(latest)

    @property
    def bootstrap_records(self) -> list[Message]:
        """The records that the node was formatted with, which the first active controller appends."""
        return self.log.snapshots.bootstrap

    def take_snapshot_notice(self) -> bool:
        """Whether a snapshot has replaced records since the last call."""
        notice, self.snapshot_notice = self.snapshot_notice, False
        return notice

    def write_snapshot(
        self, end_offset: Offset, records: Iterable[Message], now: TimestampMs, level: int = NEWEST_LEVEL
    ) -> SnapshotId | None:
        """Write a snapshot of the committed log below an offset, so that the log's beginning may be deleted.

        `end_offset` is `high_watermark`, or an earlier one; `level` is the metadata.version there.
        None if a snapshot exists at or above the offset.
        Errors: ValueError for an offset that is not committed or within a batch; StorageError; then nothing is written.
        """
        # Uncommitted records may still be truncated: a snapshot must not contain them.
        if end_offset > self.high_watermark:
            raise ValueError(f"a snapshot up to {end_offset}, where {self.high_watermark} is committed")
        id = self.log.write_snapshot(end_offset, records, now, level)
        if id is not None:
            self.attempt(lambda: self.clean(now), now)
        return id

    def clean(self, now: TimestampMs) -> None:
        """Delete snapshots and log by metadata.max.retention.bytes and .ms."""
        settings = self.settings
        try:
            self.log.clean(now, self.high_watermark, settings.retention_bytes, settings.retention_ms)
        except CorruptFile as error:
            self.say("error", str(error))

    # ---- outputs

    def has_news(self, applied: Offset) -> bool:
        """Whether there are requests, responses, a snapshot, or committed records from `applied` on to take."""
        return bool(self._sends or self.answers) or self.snapshot_notice or applied < self.high_watermark

    def take_sends(self) -> list[tuple[NodeId, Message]]:
        """The requests to send, since the last call."""
        sends, self._sends = self._sends, []
        return sends

    def take_answers(self) -> list[tuple[object, Message]]:
        """The responses to delayed requests, with their tokens, since the last call."""
        answers, self.answers = self.answers, []
        return answers

    def send(self, peer: NodeId, request: Message, now: TimestampMs) -> None:
        self.requests.asked(peer, request, now)
        self._sends.append((peer, request))

    def attempt(self, step: Callable[[], None], now: TimestampMs) -> None:
        """Do a step; after a disk failure pause all work for STORAGE_PAUSE_MS."""
        try:
            step()
        except StorageError as error:
            self.say_error(error.message)
            self._paused_until = now + STORAGE_PAUSE_MS

    def say_error(self, text: str) -> None:
        self.say("error", f"{PARTITION_NAME}: {text}")

    def trace_step(self, action: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Write one row of the trace: the step, its arguments by the specification's names, and the state after it."""
        if self.trace is not None:
            state: dict[str, Any] = {
                "node": self.node,
                "partition": PARTITION_NAME,
                "from": self.node,
                "epoch": self.epoch,
                "leo": self.log.end,
                "lastEpoch": self.log.last_epoch,
                "highWatermark": self.high_watermark,
            }
            self.trace(action, state | dict(arguments or {}))

    # ---- roles

    def change(self, state: RoleState, stored: QuorumState) -> None:
        """Change the role or the epoch, on disk first. Errors: StorageError; then nothing has changed."""
        assert (self.role, state.role) in TRANSITIONS, f"{self.role.value} to {state.role.value}"
        assert stored.leader_epoch >= self.epoch, f"epoch {stored.leader_epoch} after {self.epoch}"
        removed = self.role is Role.LEADER and state.role is Role.RESIGNED
        assert self.may_stand or removed or state.role in OBSERVER_ROLES, f"an observer as {state.role.value}"
        # The disk first, and so before any message: a member that forgot its vote could vote twice in one epoch, and two leaders
        # of one epoch could both commit.
        is_new = state.role is not self.role or stored.leader_epoch != self.epoch
        self._store(stored)
        before, self.state = self.state, state
        before.end()
        if is_new:  # not for a vote in the same epoch and role: open requests remain useful
            self.requests.reset()

    def _store(self, stored: QuorumState) -> None:
        if stored != self.stored:
            folder = self.records_log.folder
            try:
                write_quorum_state(self.disk, folder, stored)
            except OSError as error:
                raise StorageError(f"{folder / 'quorum-state'}: {error.strerror or error}") from error
            self.stored = stored

    def stored_with(self, epoch: LeaderEpoch, leader: NodeId) -> QuorumState:
        """The state to store for an epoch, with this member's vote if it voted in that epoch."""
        # A vote belongs to one epoch. In the next one it would count as given, and bar this member from voting for another
        # candidate.
        if epoch != self.epoch:
            return QuorumState(leader, epoch)
        return QuorumState(leader, epoch, self.stored.voted, self.stored.voted_directory)

    def election_deadline(self, now: TimestampMs) -> TimestampMs:
        timeout_ms = self.settings.election_timeout_ms
        # Drawn each time: with equal timeouts the same members would split the votes again and again.
        return now + timeout_ms + (self.chance.randrange(0, timeout_ms) if timeout_ms else 0)

    # ---- refusing requests

    def voter_error(self, sender: NodeId, epoch: LeaderEpoch) -> ErrorCode:
        """The error code of a request that only another voter may send to a voter."""
        if self.log.is_broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        # This error reports the newer epoch to a deposed leader.
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender == self.node or epoch >= MAX_EPOCH:
            return ErrorCode.INVALID_REQUEST
        if self.is_static and (sender not in self.voters or not self.is_voter):
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.INVALID_REQUEST if sender < 0 else ErrorCode.NONE

    def leader_error(self, epoch: LeaderEpoch) -> ErrorCode:
        """The error code of a request for the leader of an epoch."""
        if self.log.is_broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def is_other_cluster(self, cluster_id: str | None) -> bool:
        """Whether a request names another cluster."""
        return cluster_id is not None and cluster_id != self.cluster_id

    def is_meant(self, voter: NodeId, directory: UUID) -> bool:
        """Whether a request names this voter, or no voter."""
        return voter in (NO_NODE, self.node) and directory in (NO_UUID, self.directory)
