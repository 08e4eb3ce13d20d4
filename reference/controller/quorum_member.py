"""The part of a quorum member that all roles share: state, changes of role, learning of leaders.

The roles' own work is in `quorum_electing`, `quorum_leading` and `quorum_following`; `quorum` combines them and explains the
whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.quorum_addresses import Address, Addresses, add_leader
from reference.controller.quorum_log import QuorumLog
from reference.controller.quorum_requests import OpenRequests
from reference.controller.quorum_roles import (
    NEVER,
    OBSERVER_ROLES,
    TRANSITIONS,
    Follower,
    Leader,
    Nominee,
    Resigned,
    Role,
    RoleState,
    Unattached,
)
from reference.controller.quorum_settings import QuorumSettings
from reference.controller.quorum_snapshots import SnapshotId
from reference.controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from reference.controller.quorum_voters import VoterSet
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.primitives import NO_NODE, NO_UUID, Chance, LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.schema import Message
from reference.replication.partition import Trace
from reference.storage.disk import Disk
from reference.storage.errors import StorageError
from reference.storage.log import Log
from reference.storage.log_directory import Logger

MAX_EPOCH = LeaderEpoch(2**31 - 1)
"""No leader can have this epoch: there would be none after it."""

STORAGE_PAUSE_MS = 1000
"""How long nothing is tried after the disk has refused."""

PARTITION_NAME = "__cluster_metadata-0"

Reply = TypeVar("Reply")


def say_nothing(level: str, message: str) -> None:
    pass


@dataclass(slots=True)
class Waiting:
    """A fetch that the leader has nothing for yet."""

    token: object
    replica: NodeId
    request: FetchRequest
    partition: FetchRequest.FetchPartition
    deadline: TimestampMs


class Member(ABC):
    """One voter or observer, without the work of its roles."""

    def __init__(
        self,
        node: NodeId,
        cluster_id: str,
        settings: QuorumSettings,
        disk: Disk,
        log: Log,
        chance: Chance,
        now: TimestampMs,
        *,
        directory: UUID = NO_UUID,
        say: Logger = say_nothing,
        trace: Trace | None = None,
    ) -> None:
        """Start from the stored state; the only voter of a quorum leads when this returns.

        `directory` is the id of the data folder, `log` that of `__cluster_metadata-0`, whose folder has `quorum-state`.
        Errors: StorageError; CorruptFile that names the file.
        """
        self.node = node
        self.cluster_id = cluster_id
        self.settings = settings
        self.trace = trace
        self._directory = directory
        self._disk = disk
        self._folder = log.folder
        self._chance = chance
        self._say = say
        self._log = QuorumLog(disk, log, now, settings.voters)
        self._addresses = Addresses(settings)
        self._high_watermark = self._log.known_committed
        self._snapshot_notice = self._log.snapshots.latest is not None
        self._requests = OpenRequests(settings.request_timeout_ms, settings.retry_backoff_ms)
        self._sends: list[tuple[NodeId, Message]] = []
        self._answers: list[tuple[object, Message]] = []
        self._waiting: list[Waiting] = []
        self._shutting_down = False
        self._paused_until: TimestampMs | None = None
        self._stored = self._read_state()
        self._state: RoleState = self._first_role(now)
        # Voters in the log are not named: the traces of quorums that change are not checked against the specification.
        self._trace_step("Restart", {"voters": [*self._voters.ids] if self.is_static else []})
        self._begin(now)

    @abstractmethod
    def _begin(self, now: TimestampMs) -> None:
        """Do the work of the first role."""

    def _read_state(self) -> QuorumState:
        """The stored state; the log's last epoch where that is newer, for no file was written then."""
        stored = read_quorum_state(self._disk, self._folder)
        if stored.leader_epoch < self._log.last_epoch:
            return QuorumState(leader_epoch=self._log.last_epoch)
        return stored

    def _first_role(self, now: TimestampMs) -> RoleState:
        """The role after a start: a former leader never leads its epoch again, for it may have lost the end of its log."""
        stored = self._stored
        if not self._is_voter:
            return Unattached(NEVER)
        if not self._others:
            return Unattached(now)
        if stored.leader == self.node:
            return Resigned(self._election_deadline(now), list(self._others), set(self._others))
        if stored.leader in self._others:
            return Follower(now + self.settings.fetch_timeout_ms)
        if stored.voted == self.node:
            return Nominee(Role.CANDIDATE, self._election_deadline(now), {self.node})
        return Unattached(self._election_deadline(now))

    # ---- voters

    @property
    def _voters(self) -> VoterSet:
        """The latest voters in the log, committed or not; the configuration's where the log names none."""
        return self._log.history.voters

    @property
    def _is_voter(self) -> bool:
        return self._voters.is_voter(self.node, self._directory)

    @property
    def _others(self) -> tuple[NodeId, ...]:
        """The voters but this node."""
        return tuple(voter for voter in self._voters.ids if voter != self.node)

    @property
    def is_static(self) -> bool:
        """Whether the voters are the configuration's: then a node that is not among them is a stranger."""
        return self.kraft_version == 0 and bool(self.settings.voters)

    @property
    def kraft_version(self) -> int:
        """1 where the voters are in the log and can change (KIP-853)."""
        return self._log.history.level

    @property
    def voters(self) -> VoterSet:
        """The latest voters, committed or not."""
        return self._voters

    @property
    def is_only_voter(self) -> bool:
        return self._is_voter and len(self._voters) == 1

    def address_of(self, peer: NodeId) -> Address | None:
        """Where a node's controller is reached, as far as this member knows."""
        return self._addresses.of(peer, self._voters)

    def _leader_address(self) -> Address | None:
        """Where the known leader is reached; None with the voters of the configuration."""
        if self.is_static:
            return None
        leader = self._stored.leader
        return self._addresses.own if leader == self.node else self.address_of(leader)

    def _with_leader(self, response: Reply) -> Reply:
        """Add the leader's address to a response."""
        add_leader(response, self._stored.leader, self._leader_address())
        return response

    # ---- questions

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def epoch(self) -> LeaderEpoch:
        return self._stored.leader_epoch

    @property
    def leader(self) -> NodeId:
        """The known leader; -1 when there is none."""
        return NO_NODE if self.role is Role.RESIGNED else self._stored.leader

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_ready(self) -> bool:
        """Whether it leads and may decide: a record of its epoch is committed, so it knows all that was ever committed."""
        return isinstance(self._state, Leader) and self._high_watermark > self._state.epoch_start

    @property
    def is_broken(self) -> bool:
        """Whether the disk has refused so that only a new start helps: the member does no more, and says so to others."""
        return self._log.is_broken

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed."""
        return self._high_watermark

    @property
    def log_start_offset(self) -> Offset:
        return self._log.start

    @property
    def log_end_offset(self) -> Offset:
        return self._log.end

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._log.snapshots.latest

    @property
    def records_log(self) -> Log:
        """The log of `__cluster_metadata-0`, to be read only."""
        return self._log.log

    def committed(self, start: Offset) -> Iterator[tuple[Offset, Message]]:
        """The committed metadata records from an offset on, each with its offset; unknown types are left out.

        Errors: OffsetOutOfRange below the log's start, where a snapshot stands instead; CorruptFile that names the log and
        the offset; StorageError.
        """
        return self._log.records(start, self._high_watermark)

    def appended(self, start: Offset) -> Iterator[tuple[Offset, Message]]:
        """As `committed`, and the uncommitted records, too."""
        return self._log.records(start, self._log.end)

    def snapshot_records(self) -> Iterator[Message]:
        """The records of the latest snapshot; none if there is none. Errors: CorruptFile that names it, StorageError."""
        latest = self._log.snapshots.latest
        return iter(()) if latest is None else self._log.snapshots.records(latest)

    @property
    def bootstrap_records(self) -> list[Message]:
        """What this node was formatted with, for the first active controller to append."""
        return self._log.snapshots.bootstrap

    def take_snapshot_notice(self) -> bool:
        """Whether a snapshot has come in the place of records since the last call."""
        notice, self._snapshot_notice = self._snapshot_notice, False
        return notice

    # ---- outputs

    def has_news(self, applied: Offset) -> bool:
        """Whether there are requests, answers, a snapshot, or committed records from `applied` on to be taken."""
        return bool(self._sends or self._answers) or self._snapshot_notice or applied < self._high_watermark

    def take_sends(self) -> list[tuple[NodeId, Message]]:
        """The requests that are to be sent, since the last call."""
        sends, self._sends = self._sends, []
        return sends

    def take_answers(self) -> list[tuple[object, Message]]:
        """The answers to fetches, by their tokens, since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def forget(self, token: object) -> None:
        """The answer to a fetch is not wanted any more."""
        self._waiting = [waiting for waiting in self._waiting if waiting.token != token]

    def _send(self, peer: NodeId, request: Message, now: TimestampMs) -> None:
        self._requests.asked(peer, request, now)
        self._sends.append((peer, request))

    # ---- doing what is due

    def _drive(self, now: TimestampMs) -> None:
        """Do the role's work that is due, and the next role's if the role changes."""
        if self._log.is_broken or (self._paused_until is not None and now < self._paused_until):
            return
        self._paused_until = None
        self._requests.tick(now)
        for _ in range(len(Role)):
            before = self._state
            self._attempt(lambda: self._act(now), now)
            if self._state is before or self._paused_until is not None:
                return

    @abstractmethod
    def _act(self, now: TimestampMs) -> None:
        """Do the role's work that is due."""

    def _attempt(self, step: Callable[[], None], now: TimestampMs) -> None:
        try:
            step()
        except StorageError as error:
            self._say("error", f"{PARTITION_NAME}: {error.message}")
            self._paused_until = now + STORAGE_PAUSE_MS

    def _stays_until_the_end(self) -> bool:
        """A member that shuts down begins no election."""
        return self._shutting_down and self.role is not Role.LEADER

    def _election_deadline(self, now: TimestampMs) -> TimestampMs:
        timeout_ms = self.settings.election_timeout_ms
        return now + timeout_ms + (self._chance.randrange(0, timeout_ms) if timeout_ms else 0)

    # ---- roles

    def _change(self, state: RoleState, stored: QuorumState) -> None:
        """Take another role, or another epoch: first on the disk. Errors: StorageError, and nothing has changed."""
        assert (self.role, state.role) in TRANSITIONS, f"{self.role.value} to {state.role.value}"
        assert stored.leader_epoch >= self.epoch, f"epoch {stored.leader_epoch} after {self.epoch}"
        removed = self.role is Role.LEADER and state.role is Role.RESIGNED
        assert self._is_voter or removed or state.role in OBSERVER_ROLES, f"an observer as {state.role.value}"
        # The disk first, and so before any message: a member that forgot its vote could vote twice in one epoch, and two leaders
        # of one epoch could both commit.
        self._store(stored)
        before, self._state = self._state, state
        if isinstance(before, Follower) and before.receipt is not None:
            before.receipt.abandon()
        if isinstance(before, Leader):
            self._refuse_waiting()
            self._abandon_change(before)
        self._requests.reset()

    def _store(self, stored: QuorumState) -> None:
        if stored != self._stored:
            try:
                write_quorum_state(self._disk, self._folder, stored)
            except OSError as error:
                raise StorageError(f"{self._folder / 'quorum-state'}: {error.strerror or error}") from error
            self._stored = stored

    def _has_lost(self, state: Nominee) -> bool:
        return len(state.refused) > len(self._voters) - self._voters.majority

    def _become_unattached(self, epoch: LeaderEpoch, leader: NodeId, now: TimestampMs) -> None:
        """Wait for a leader; a node that was waiting for an election goes on with the time that is left."""
        state = self._state
        lost = isinstance(state, Nominee) and state.role is Role.PROSPECTIVE and self._has_lost(state)
        if not self._is_voter:
            deadline = NEVER
        elif isinstance(state, Unattached | Nominee | Resigned) and state.deadline > now and not lost:
            deadline = state.deadline
        else:
            deadline = self._election_deadline(now)
        self._change(Unattached(deadline), self._stored_with(epoch, leader))

    def _become_follower(self, epoch: LeaderEpoch, leader: NodeId, now: TimestampMs) -> None:
        """A leader is known: fetch from it."""
        timeout = TimestampMs(now + self.settings.fetch_timeout_ms)
        self._change(Follower(timeout, next_report=timeout), self._stored_with(epoch, leader))

    def _stored_with(self, epoch: LeaderEpoch, leader: NodeId) -> QuorumState:
        """What is stored of an epoch, with the vote in it if there was one."""
        if epoch != self.epoch:
            return QuorumState(leader, epoch)
        return QuorumState(leader, epoch, self._stored.voted, self._stored.voted_directory)

    def _become_resigned(self, state: Leader, now: TimestampMs) -> None:
        """Lead no longer, and inform the others, so that they need not wait for a timeout."""
        ends = {voter: progress.end for voter, progress in state.voters.items()}
        successors = sorted(ends, key=lambda voter: (-ends[voter], voter))
        self._change(Resigned(self._election_deadline(now), successors, set(self._others)), self._stored)

    def _refuse_waiting(self) -> None:
        """It leads no longer: waiting fetches are refused, so that their senders look for the next leader."""
        for waiting in self._waiting:
            refusal = messages.fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, self._stored.leader)
            self._answers.append((waiting.token, refusal))
        self._waiting = []

    @abstractmethod
    def _abandon_change(self, state: Leader) -> None:
        """It leads no longer: the change of voters that was asked for is another leader's to answer."""

    # ---- hearing of leaders

    def _adopt(self, epoch: LeaderEpoch, leader: NodeId, now: TimestampMs, source: NodeId) -> bool:
        """Follow the leader of this epoch or a newer one, or wait for the newer one's; True when the role has changed."""
        if not self.is_static and leader not in (NO_NODE, self.node) and self.address_of(leader) is None:
            leader = NO_NODE
        if leader != NO_NODE and ((self.is_static and leader not in self._voters) or leader == self.node):
            if not (leader == self.node and epoch == self.epoch and self._stored.leader == self.node):
                self._say("error", f"{PARTITION_NAME}: node {source} names node {leader} the leader of epoch {epoch}")
            return False
        if epoch > self.epoch:
            if epoch >= MAX_EPOCH:
                return False
            if leader == NO_NODE:
                self._become_unattached(epoch, NO_NODE, now)
            else:
                self._become_follower(epoch, leader, now)
            self._trace_step("LearnEpoch", {"from": source, "to": self.node})
            return True
        known = self._stored.leader
        if leader == NO_NODE or (known != NO_NODE and (known != leader or self.role is not Role.UNATTACHED)):
            if NO_NODE not in (leader, known) and known != leader:
                self._say("error", f"{PARTITION_NAME}: nodes {known} and {leader} are said to lead epoch {epoch}")
            return False
        self._become_follower(epoch, leader, now)
        return True

    def _heeds(self, peer: NodeId, error: int, epoch: LeaderEpoch, leader: NodeId, now: TimestampMs) -> bool:
        """Learn epoch and leader from a response; True when the rest of the response is valid, too."""
        if epoch >= self.epoch and error != ErrorCode.UNKNOWN_LEADER_EPOCH:
            newer = epoch > self.epoch
            if self._adopt(epoch, leader, now, peer) and (newer or error != ErrorCode.NONE):
                return False
            if error == ErrorCode.NONE and epoch == self.epoch:
                return True
        self._requests.pause(peer, now)
        return False

    def _voter_error(self, sender: NodeId, epoch: LeaderEpoch) -> ErrorCode:
        """The error of a request that only another voter may send to a voter."""
        if self._log.is_broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        # A deposed leader learns of the newer epoch by this error.
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender == self.node or epoch >= MAX_EPOCH:
            return ErrorCode.INVALID_REQUEST
        if self.is_static and (sender not in self._voters or not self._is_voter):
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.INVALID_REQUEST if sender < 0 else ErrorCode.NONE

    def _leader_error(self, epoch: LeaderEpoch) -> ErrorCode:
        """The error of a request for the leader of an epoch."""
        if self._log.is_broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _is_meant(self, voter: NodeId, directory: UUID) -> bool:
        """Whether a request names this voter, or no node."""
        return voter in (NO_NODE, self.node) and directory in (NO_UUID, self._directory)

    def _reported_error(self, leader: NodeId, epoch: LeaderEpoch, now: TimestampMs) -> ErrorCode:
        """Believe a leader's word about its epoch, or say why not."""
        error = self._voter_error(leader, epoch)
        if error is not ErrorCode.NONE:
            return error
        if epoch == self.epoch and self._stored.leader not in (NO_NODE, leader):
            # Two leaders of one epoch: one of the two has lost its memory. The first one known stays.
            self._adopt(epoch, leader, now, leader)
            return ErrorCode.INVALID_REQUEST
        try:
            self._adopt(epoch, leader, now, leader)
        except StorageError as failure:
            self._say("error", f"{PARTITION_NAME}: {failure.message}")
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # ---- trace

    def _trace_step(self, action: str, arguments: Mapping[str, Any] | None = None) -> None:
        """One line of the trace: the step, its arguments as the specification names them, and the state after it."""
        if self.trace is not None:
            state: dict[str, Any] = {
                "node": self.node,
                "partition": PARTITION_NAME,
                "from": self.node,
                "epoch": self.epoch,
                "leo": self._log.end,
                "lastEpoch": self._log.last_epoch,
                "highWatermark": self._high_watermark,
            }
            self.trace(action, state | dict(arguments or {}))
