"""One member of the metadata quorum: who is the active controller, and which records of `__cluster_metadata` are true.

# What it is for

The cluster's metadata are one log. One *voter* leads and appends; the others, and the *observers* (brokers without a vote),
fetch from it. A record is *committed* when a majority of the voters has it durably and one of the leader's own epoch with
it; what is committed is never lost and never changes, and only from committed records a node makes its image. Every leader
has an epoch of its own, larger than all before: whoever hears of a larger one stops to lead.

# Inputs and outputs

`Quorum` is a state machine: messages and time in, messages out. Nothing here waits, and what needs chance gets a generator.

- Requests of others: `handle_vote`, `handle_begin_quorum_epoch`, `handle_end_quorum_epoch`, `handle_fetch_snapshot`,
  `handle_describe_quorum` give the response at once. `handle_fetch` is a long poll: its response comes out of
  `take_answers`, with the token that was given, now or later; `forget` drops a token whose connection is gone.
- Our requests: `take_sends` gives (peer, request body). The caller sends each as it likes, and says how it went by
  `receive(peer, request, response, now)` or `unreachable(peer, request, now)`, with the very object that it was given. A
  request that is neither answered nor lost is given up after request_timeout_ms. A fetch may be held by the leader: other
  requests to the same peer should not have to wait behind it.
- Time: `tick(now)`, at the latest at `next_deadline()`.
- The leader: `append(records, now)`, once it `is_ready`; `resign(now)` before a clean end.
- What is true: `committed(start)` gives the metadata records from an offset up to `high_watermark`. When
  `take_snapshot_notice()` is true (at the start, if there is a snapshot, and whenever the leader sent one), begin anew with
  `snapshot_records()` and go on with `committed(latest_snapshot.end_offset)`. `write_snapshot` keeps the log short.

So a node's loop is, after every call: take sends and answers; then

    if quorum.take_snapshot_notice(): image = image of quorum.snapshot_records(); applied = quorum.latest_snapshot.end_offset
    for offset, record in quorum.committed(applied): image.apply(record)
    applied = quorum.high_watermark

A leader that decides on top of what is not committed yet reads that by `appended(start)`; when it is deposed (`epoch` or
`is_leader` changes) it goes back to what is committed.

# What is durable, and when

Epoch, vote and leader are flushed (`quorum-state`) before the role changes, and so before anybody is told. A voter flushes
what it fetched before it fetches on, for its next fetch tells the leader that it has it. The leader counts itself only
with what it has flushed. When the disk refuses, the step has not happened: a handler answers KAFKA_STORAGE_ERROR, `append`
raises it, and everything else is tried again after STORAGE_PAUSE_MS.

# Known deviations from Apache Kafka 4.3, whose org.apache.kafka.raft.KafkaRaftClient is the model

- Voters are static, so a vote or epoch of a node that is no voter is refused with INCONSISTENT_VOTER_SET (as Kafka did up
  to 3.8) before its epoch is looked at: a stranger cannot depose a leader.
- The leader flushes before it answers fetches that wait, so that nobody has a record durably before the leader.
- A member that is prospective and knows a leader follows it again when that leader's BeginQuorumEpoch comes.
- No voter is added or removed, and UpdateRaftVoter is not sent.

Source: KIP-595, KIP-630, KIP-996, KIP-1166; org.apache.kafka.raft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.quorum_log import QuorumLog, Verdict
from reference.controller.quorum_requests import OpenRequests
from reference.controller.quorum_roles import (
    NEVER,
    OBSERVER_ROLES,
    TRANSITIONS,
    Follower,
    Leader,
    Nominee,
    Progress,
    Resigned,
    Role,
    RoleState,
    Unattached,
)
from reference.controller.quorum_rules import (
    NOBODY,
    grants_vote,
    is_up_to_date,
    majority_end,
    next_commit,
    successor_delay_ms,
)
from reference.controller.quorum_settings import QuorumSettings
from reference.controller.quorum_snapshots import BOOTSTRAP, SnapshotId
from reference.controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.describe_quorum import DescribeQuorumResponse
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from reference.protocol.messages.vote import VoteRequest, VoteResponse
from reference.protocol.primitives import NO_UUID, Epoch, NodeId, Offset, TimestampMs
from reference.protocol.records.errors import RecordsError
from reference.protocol.schema import Message
from reference.replication.partition import Trace
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile, LogError, StorageError
from reference.storage.log import Log
from reference.storage.log_manager import Logger

MAX_EPOCH: Epoch = 2**31 - 1
"""No leader can have this epoch: there would be none after it."""

MAX_WAITING = 1000
"""Fetches that wait at a leader; more are answered at once, with nothing."""

MAX_OBSERVERS = 1000
"""Members without a vote that a leader remembers."""

OBSERVER_SESSION_MS = 300_000
"""After this time without a fetch an observer is forgotten (LeaderState.OBSERVER_SESSION_TIMEOUT_MS)."""

STORAGE_PAUSE_MS = 1000
"""How long nothing is tried after the disk has refused."""

PARTITION_NAME = "__cluster_metadata-0"


class Chance(Protocol):
    """The seeded generator that the node was given."""

    def randrange(self, start: int, stop: int, /) -> int: ...


def _say_nothing(level: str, message: str) -> None:
    pass


@dataclass(slots=True)
class _Waiting:
    """A fetch that the leader has nothing for yet."""

    token: object
    replica: NodeId
    request: FetchRequest
    partition: FetchRequest.FetchPartition
    deadline: TimestampMs


class Quorum:
    """One voter or observer."""

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
        say: Logger = _say_nothing,
        trace: Trace | None = None,
    ) -> None:
        """Take up what the last end left; the only voter leads when this returns.

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
        self._is_voter = node in settings.voters
        self._others = tuple(voter for voter in settings.voters if voter != node)
        self._log = QuorumLog(disk, log, now)
        self._high_watermark = self._log.known_committed
        self._snapshot_notice = self._log.snapshots.latest is not None
        self._requests = OpenRequests(settings.request_timeout_ms, settings.retry_backoff_ms)
        self._sends: list[tuple[NodeId, Message]] = []
        self._answers: list[tuple[object, Message]] = []
        self._waiting: list[_Waiting] = []
        self._shutting_down = False
        self._paused_until: TimestampMs | None = None
        self._stored = self._read_state()
        self._state: RoleState = self._first_role(now)
        self._tell("Restart")
        if settings.voters == (node,):
            self._become_prospective(now)
        self._drive(now)

    # ---- starting

    def _read_state(self) -> QuorumState:
        """The stored state; the log's last epoch where that is newer, for no file was written then."""
        stored = read_quorum_state(self._disk, self._folder)
        if stored.leader_epoch < self._log.last_epoch:
            return QuorumState(leader_epoch=self._log.last_epoch)
        return stored

    def _first_role(self, now: TimestampMs) -> RoleState:
        """What a member is after its start: a former leader never leads its epoch again, for it may have lost its end."""
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

    # ---- questions

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def epoch(self) -> Epoch:
        return self._stored.leader_epoch

    @property
    def leader(self) -> NodeId:
        """Who leads, as far as is known; -1 when nobody is known to."""
        return NOBODY if self.role is Role.RESIGNED else self._stored.leader

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_ready(self) -> bool:
        """Whether it leads and may decide: a record of its epoch is committed, so it knows all that was ever committed."""
        return isinstance(self._state, Leader) and self._high_watermark > self._state.epoch_start

    @property
    def is_voter(self) -> bool:
        return self._is_voter

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

    def committed(self, start: Offset) -> Iterator[tuple[Offset, Message]]:
        """The committed metadata records from an offset on, each with its offset; unknown types are left out.

        Errors: OffsetOutOfRange below the log's start, where a snapshot stands instead; StorageError, CodecError,
        RecordsError.
        """
        return self._log.records(start, self._high_watermark)

    def appended(self, start: Offset) -> Iterator[tuple[Offset, Message]]:
        """As `committed`, with what is not committed yet."""
        return self._log.records(start, self._log.end)

    def snapshot_records(self) -> Iterator[Message]:
        """The records of the latest snapshot; none if there is none. Errors: CorruptFile that names it, StorageError."""
        latest = self._log.snapshots.latest
        return iter(()) if latest is None else self._log.snapshots.records(latest)

    def take_snapshot_notice(self) -> bool:
        """Whether a snapshot has come in the place of records since the last call."""
        notice, self._snapshot_notice = self._snapshot_notice, False
        return notice

    # ---- outputs

    def take_sends(self) -> list[tuple[NodeId, Message]]:
        """The requests that are to be sent, since the last call."""
        sends, self._sends = self._sends, []
        return sends

    def take_answers(self) -> list[tuple[object, Message]]:
        """The answers to fetches, by their tokens, since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def forget(self, token: object) -> None:
        """Nobody waits for the answer to a fetch any more."""
        self._waiting = [waiting for waiting in self._waiting if waiting.token != token]

    def next_deadline(self) -> TimestampMs | None:
        """When `tick` has something to do next; None when nothing is due ever."""
        times = [waiting.deadline for waiting in self._waiting]
        if self._paused_until is not None:
            return min([*times, self._paused_until])
        if self._state.deadline != NEVER and not self._stays_until_the_end():
            times.append(self._state.deadline)
        if (request := self._requests.next_deadline()) is not None:
            times.append(request)
        if len(self._log.snapshots.ids) > 1:
            times.append(self._log.next_cleaning)
        return min(times, default=None)

    # ---- time

    def tick(self, now: TimestampMs) -> None:
        """Do what is due: elections, resignation, requests, answers to fetches that have waited enough, cleaning."""
        for waiting in [waiting for waiting in self._waiting if waiting.deadline <= now]:
            self._waiting.remove(waiting)
            self._answers.append((waiting.token, self._read_for(waiting.partition, waiting.request)[0]))
        if len(self._log.snapshots.ids) > 1 and now >= self._log.next_cleaning:
            self._attempt(lambda: self._clean(now), now)
        self._drive(now)

    def _drive(self, now: TimestampMs) -> None:
        """Do what the role wants at this time, and what the next one wants if it changes."""
        if self._paused_until is not None and now < self._paused_until:
            return
        self._paused_until = None
        self._requests.tick(now)
        for _ in Role:
            before = self._state
            self._attempt(lambda: self._act(now), now)
            if self._state is before or self._paused_until is not None:
                return

    def _act(self, now: TimestampMs) -> None:
        state = self._state
        overdue = now >= state.deadline and not self._stays_until_the_end()
        match state:
            case Leader():
                self._lead(state, now)
            case Nominee() if overdue:
                self._lose(state, now)
            case Nominee():
                self._ask_for_votes(state, now)
            case Follower() if overdue and self._is_voter:
                self._become_prospective(now)
            case Follower() if overdue:
                self._become_unattached(self.epoch, self._stored.leader, now)
            case Follower():
                self._fetch_from_leader(state, now)
            case Unattached() if overdue:
                self._become_prospective(now)
            case Unattached():
                self._fetch_from_anybody(now)
            case Resigned() if overdue:
                self._become_unattached(self.epoch + 1, NOBODY, now)
            case Resigned():
                self._tell_of_resignation(state, now)

    def _stays_until_the_end(self) -> bool:
        """A member that shuts down begins no election."""
        return self._shutting_down and self.role is not Role.LEADER

    def _attempt(self, step: Callable[[], None], now: TimestampMs) -> None:
        try:
            step()
        except StorageError as error:
            self._say("error", f"{PARTITION_NAME}: {error.message}")
            self._paused_until = now + STORAGE_PAUSE_MS

    def _election_deadline(self, now: TimestampMs) -> TimestampMs:
        timeout_ms = self.settings.election_timeout_ms
        return now + timeout_ms + (self._chance.randrange(0, timeout_ms) if timeout_ms else 0)

    # ---- roles

    def _change(self, state: RoleState, stored: QuorumState) -> None:
        """Take another role, or another epoch: first on the disk. Errors: StorageError, and nothing has changed."""
        assert (self.role, state.role) in TRANSITIONS, f"{self.role.value} to {state.role.value}"
        assert stored.leader_epoch >= self.epoch, f"epoch {stored.leader_epoch} after {self.epoch}"
        assert self._is_voter or state.role in OBSERVER_ROLES, f"an observer as {state.role.value}"
        self._store(stored)
        before, self._state = self._state, state
        if isinstance(before, Follower) and before.receipt is not None:
            before.receipt.abandon()
        if isinstance(before, Leader):
            self._refuse_waiting()
        self._requests.reset()

    def _store(self, stored: QuorumState) -> None:
        if stored != self._stored:
            try:
                write_quorum_state(self._disk, self._folder, stored)
            except OSError as error:
                raise StorageError(f"{self._folder / 'quorum-state'}: {error.strerror or error}") from error
            self._stored = stored

    def _become_unattached(self, epoch: Epoch, leader: NodeId, now: TimestampMs) -> None:
        """Wait for a leader; whoever was waiting for an election goes on with the time that is left."""
        same = epoch == self.epoch
        state = self._state
        lost = isinstance(state, Nominee) and state.role is Role.PROSPECTIVE and self._has_lost(state)
        if not self._is_voter:
            deadline = NEVER
        elif isinstance(state, Unattached | Nominee | Resigned) and state.deadline > now and not lost:
            deadline = state.deadline
        else:
            deadline = self._election_deadline(now)
        self._change(Unattached(deadline), QuorumState(leader, epoch, self._stored.voted if same else NOBODY))

    def _become_prospective(self, now: TimestampMs) -> None:
        """Ask the others whether they would vote for this member; nobody is disturbed by it."""
        if self.epoch >= MAX_EPOCH - 1:
            self._say("error", f"{PARTITION_NAME}: epoch {self.epoch} is the last that there can be: no election")
            self._state = Unattached(NEVER)
            return
        self._change(Nominee(Role.PROSPECTIVE, self._election_deadline(now), {self.node}), self._stored)
        self._tell("BecomeProspective")
        self._count_votes(now)

    def _become_candidate(self, now: TimestampMs) -> None:
        """Begin a new epoch with a vote for itself."""
        self._change(
            Nominee(Role.CANDIDATE, self._election_deadline(now), {self.node}),
            QuorumState(NOBODY, self.epoch + 1, self.node),
        )
        self._tell("BecomeCandidate")
        self._count_votes(now)

    def _become_leader(self, granting: set[NodeId], now: TimestampMs) -> None:
        """Lead the epoch: its first record makes all before it committable."""
        settings = self.settings
        state = Leader(
            epoch_start=self._log.end,
            check_quorum_at=now + settings.check_quorum_ms if self._others else NEVER,
            begin_epoch_at=now if self._others else NEVER,
            voters={voter: Progress() for voter in self._others},
        )
        self._change(state, QuorumState(self.node, self.epoch, self._stored.voted))
        self._tell("BecomeLeader")
        try:
            self._log.begin_epoch(self.epoch, self.node, settings.voters, sorted(granting), now)
        except StorageError:
            self._become_resigned(state, now)
            raise
        self._tell("AppendRecord")
        self._advance_high_watermark(state, now)

    def _become_follower(self, epoch: Epoch, leader: NodeId, now: TimestampMs) -> None:
        """A leader is known: fetch from it."""
        voted = self._stored.voted if epoch == self.epoch else NOBODY
        self._change(Follower(now + self.settings.fetch_timeout_ms), QuorumState(leader, epoch, voted))

    def _become_resigned(self, state: Leader, now: TimestampMs) -> None:
        """Lead no longer; tell the others, that they need not wait to find it out."""
        ends = {voter: progress.end for voter, progress in state.voters.items()}
        successors = sorted(ends, key=lambda voter: (-ends[voter], voter))
        self._change(Resigned(self._election_deadline(now), successors, set(self._others)), self._stored)

    def resign(self, now: TimestampMs) -> None:
        """A clean end is near: lead no longer, begin no election. The caller lets the messages go out before it stops."""
        self._shutting_down = True
        if isinstance(self._state, Leader):
            self._become_resigned(self._state, now)
        self._drive(now)

    # ---- elections

    def _has_lost(self, state: Nominee) -> bool:
        return len(state.refused) > len(self.settings.voters) - self.settings.majority

    def _count_votes(self, now: TimestampMs) -> None:
        state = self._state
        if not isinstance(state, Nominee) or len(state.granted) < self.settings.majority:
            return
        if state.role is Role.PROSPECTIVE:
            self._become_candidate(now)
        else:
            self._become_leader(state.granted, now)

    def _lose(self, state: Nominee, now: TimestampMs) -> None:
        """No majority: a candidate asks around again; a prospective goes back to the leader it knows, or waits."""
        if state.role is Role.CANDIDATE:
            self._become_prospective(now)
        elif self._stored.leader in self._others:
            self._become_follower(self.epoch, self._stored.leader, now)
        else:
            self._become_unattached(self.epoch, NOBODY, now)

    def _ask_for_votes(self, state: Nominee, now: TimestampMs) -> None:
        if self._has_lost(state):
            return
        for voter in self._others:
            if voter not in state.granted and voter not in state.refused and self._requests.may_ask(voter):
                request = messages.vote_request(
                    self.cluster_id, voter, self.node, self._directory, self.epoch,
                    (self._log.last_epoch, self._log.end), pre_vote=state.role is Role.PROSPECTIVE,
                )  # fmt: skip
                self._send(voter, request, now)

    def handle_vote(self, request: VoteRequest, now: TimestampMs) -> VoteResponse:
        """Give this member's vote, or say whether it would (pre-vote).

        Answers INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, INCONSISTENT_VOTER_SET for strangers, FENCED_LEADER_EPOCH,
        INVALID_VOTER_KEY when somebody else was meant, KAFKA_STORAGE_ERROR.
        """
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = messages.of_metadata(request.topics)
        if asked is None:
            return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
        error = self._vote_error(asked)
        granted = False
        if error is ErrorCode.NONE:
            try:
                error, granted = self._decide_vote(request, asked, now)
            except StorageError as failure:
                self._say("error", f"{PARTITION_NAME}: {failure.message}")
                error = ErrorCode.KAFKA_STORAGE_ERROR
        self._drive(now)
        return messages.vote_response(error, self.epoch, self._stored.leader, granted=granted)

    def _vote_error(self, asked: VoteRequest.PartitionData) -> ErrorCode:
        last_allowed = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
        if asked.last_offset < 0 or asked.last_offset_epoch < 0 or asked.last_offset_epoch > last_allowed:
            return ErrorCode.INVALID_REQUEST
        return self._voter_error(asked.replica_id, asked.replica_epoch)

    def _voter_error(self, sender: NodeId, epoch: Epoch) -> ErrorCode:
        """What is wrong with a request that only another voter may send to a voter."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender == self.node or epoch >= MAX_EPOCH:
            return ErrorCode.INVALID_REQUEST
        if sender not in self.settings.voters or not self._is_voter:
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.NONE

    def _is_meant(self, voter: NodeId, directory: UUID) -> bool:
        """Whether a request names this voter, or nobody."""
        return voter in (NOBODY, self.node) and directory in (NO_UUID, self._directory)

    def _decide_vote(
        self, request: VoteRequest, asked: VoteRequest.PartitionData, now: TimestampMs
    ) -> tuple[ErrorCode, bool]:
        candidate, epoch = asked.replica_id, asked.replica_epoch
        if epoch > self.epoch:
            self._become_unattached(epoch, NOBODY, now)
            self._tell("HearOfEpoch", {"from": candidate, "to": self.node})
        if not self._is_meant(request.voter_id, asked.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY, False
        up_to_date = is_up_to_date(
            asked.last_offset_epoch, asked.last_offset, self._log.last_epoch, self._log.end
        )  # fmt: skip
        if asked.pre_vote:
            return ErrorCode.NONE, up_to_date and self._grants_pre_votes()
        granted = self.role in (Role.UNATTACHED, Role.PROSPECTIVE) and grants_vote(
            candidate, self._stored.voted, self._stored.leader, up_to_date
        )
        if granted and self._stored.voted == NOBODY:
            self._give_vote(candidate, now)
        return ErrorCode.NONE, granted

    def _grants_pre_votes(self) -> bool:
        """A leader does not, nor who has heard from one: the others would be glad of an election."""
        state = self._state
        return not isinstance(state, Leader) and not (isinstance(state, Follower) and state.has_fetched)

    def _give_vote(self, candidate: NodeId, now: TimestampMs) -> None:
        """Vote, durably; and wait longer, for the candidate is as good as this member."""
        deadline = self._election_deadline(now)
        prospective = self.role is Role.PROSPECTIVE
        state = Nominee(Role.PROSPECTIVE, deadline, {self.node}) if prospective else Unattached(deadline)
        self._change(state, QuorumState(self._stored.leader, self.epoch, candidate))
        self._tell("GrantVote", {"from": self.node, "to": candidate})

    def _on_vote(self, peer: NodeId, request: VoteRequest, response: VoteResponse, now: TimestampMs) -> None:
        answer = messages.of_metadata(response.topics) if response.error_code == ErrorCode.NONE else None
        if answer is None or not self._heeds(
            peer, answer.error_code, answer.leader_epoch, answer.leader_id, now
        ):  # fmt: skip
            if answer is None:
                self._requests.pause(peer, now)
            return
        state = self._state
        pre_vote = request.topics[0].partitions[0].pre_vote
        if not isinstance(state, Nominee) or pre_vote != (state.role is Role.PROSPECTIVE):
            return
        if not answer.vote_granted:
            state.refused.add(peer)
            if state.role is Role.PROSPECTIVE and self._has_lost(state):
                self._lose(state, now)
            return
        state.granted.add(peer)
        if pre_vote:
            self._tell("GrantPreVote", {"from": peer, "to": self.node})
        self._count_votes(now)

    # ---- hearing of leaders

    def _adopt(self, epoch: Epoch, leader: NodeId, now: TimestampMs, source: NodeId) -> bool:
        """Follow the leader of this epoch or a newer one, or wait for the newer one's; True when the role has changed."""
        if leader != NOBODY and (leader not in self.settings.voters or leader == self.node):
            if not (leader == self.node and epoch == self.epoch and self._stored.leader == self.node):
                self._say("error", f"{PARTITION_NAME}: node {source} names node {leader} the leader of epoch {epoch}")
            return False
        if epoch > self.epoch:
            if epoch >= MAX_EPOCH:
                return False
            if leader == NOBODY:
                self._become_unattached(epoch, NOBODY, now)
            else:
                self._become_follower(epoch, leader, now)
            self._tell("HearOfEpoch", {"from": source, "to": self.node})
            return True
        known = self._stored.leader
        if leader == NOBODY or (known != NOBODY and (known != leader or self.role is not Role.UNATTACHED)):
            if NOBODY not in (leader, known) and known != leader:
                self._say("error", f"{PARTITION_NAME}: nodes {known} and {leader} are said to lead epoch {epoch}")
            return False
        self._become_follower(epoch, leader, now)
        return True

    def _heeds(self, peer: NodeId, error: int, epoch: Epoch, leader: NodeId, now: TimestampMs) -> bool:
        """Learn from what every answer says of epoch and leader; True when the rest of the answer counts too."""
        if epoch >= self.epoch and error != ErrorCode.UNKNOWN_LEADER_EPOCH:
            newer = epoch > self.epoch
            if self._adopt(epoch, leader, now, peer) and (newer or error != ErrorCode.NONE):
                return False
            if error == ErrorCode.NONE and epoch == self.epoch:
                return True
        self._requests.pause(peer, now)
        return False

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, now: TimestampMs) -> BeginQuorumEpochResponse:
        """A leader tells of its epoch. Errors in the answer as for `handle_vote`."""
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        told = messages.of_metadata(request.topics)
        if told is None:
            return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        error = self._told_error(told.leader_id, told.leader_epoch, now)
        if error is ErrorCode.NONE and not self._is_meant(request.voter_id, told.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE and self.role is Role.PROSPECTIVE and told.leader_id == self._stored.leader:
            self._attempt(lambda: self._become_follower(self.epoch, told.leader_id, now), now)
        self._drive(now)
        return messages.begin_response(error, self.epoch, self._stored.leader)

    def _told_error(self, leader: NodeId, epoch: Epoch, now: TimestampMs) -> ErrorCode:
        """Believe a leader's word about its epoch, or say why not."""
        error = self._voter_error(leader, epoch)
        if error is not ErrorCode.NONE:
            return error
        if epoch == self.epoch and self._stored.leader not in (NOBODY, leader):
            # Two leaders of one epoch: one of the two has lost its memory. The first one known stays.
            self._adopt(epoch, leader, now, leader)
            return ErrorCode.INVALID_REQUEST
        try:
            self._adopt(epoch, leader, now, leader)
        except StorageError as failure:
            self._say("error", f"{PARTITION_NAME}: {failure.message}")
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _on_begin(
        self, peer: NodeId, request: BeginQuorumEpochRequest, response: BeginQuorumEpochResponse, now: TimestampMs
    ) -> None:
        answer = messages.of_metadata(response.topics) if response.error_code == ErrorCode.NONE else None
        if answer is not None:
            self._heeds(peer, answer.error_code, answer.leader_epoch, answer.leader_id, now)

    def handle_end_quorum_epoch(self, request: EndQuorumEpochRequest, now: TimestampMs) -> EndQuorumEpochResponse:
        """A leader has resigned: its followers stand for election, the best soonest. Errors as for `handle_vote`."""
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        told = messages.of_metadata(request.topics)
        if told is None:
            return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        error = self._told_error(told.leader_id, told.leader_epoch, now)
        state = self._state
        if error is ErrorCode.NONE and isinstance(state, Follower) and self._stored.leader == told.leader_id:
            successors = messages.successors_in(told)
            position = successors.index(self.node) if self.node in successors else -1
            state.deadline = now + successor_delay_ms(
                position, len(successors), self.settings.election_backoff_max_ms
            )  # fmt: skip
            state.has_fetched = False
        self._drive(now)
        return messages.end_response(error, self.epoch, self._stored.leader)

    def _tell_of_resignation(self, state: Resigned, now: TimestampMs) -> None:
        for voter in sorted(state.unaware):
            if self._requests.may_ask(voter):
                request = messages.end_request(self.cluster_id, self.node, self.epoch, state.successors)
                self._send(voter, request, now)

    def _on_end(
        self, peer: NodeId, request: EndQuorumEpochRequest, response: EndQuorumEpochResponse, now: TimestampMs
    ) -> None:
        answer = messages.of_metadata(response.topics) if response.error_code == ErrorCode.NONE else None
        if answer is None:
            self._requests.pause(peer, now)
            return
        heeded = self._heeds(peer, answer.error_code, answer.leader_epoch, answer.leader_id, now)
        if heeded and isinstance(self._state, Resigned):
            self._state.unaware.discard(peer)

    # ---- leading

    def _lead(self, state: Leader, now: TimestampMs) -> None:
        if now >= state.check_quorum_at:
            self._say("warning", f"{PARTITION_NAME}: no majority fetches in epoch {self.epoch}: resigned")
            self._become_resigned(state, now)
        elif now >= state.begin_epoch_at:
            state.begin_epoch_at = now + self.settings.begin_epoch_ms
            for voter, progress in state.voters.items():
                silent = progress.last_fetch < 0 or now - progress.last_fetch >= self.settings.begin_epoch_ms
                if silent and self._requests.may_ask(voter):
                    self._send(voter, messages.begin_request(self.cluster_id, voter, self.node, self.epoch), now)

    def append(self, records: Sequence[Message], now: TimestampMs) -> Offset:
        """Append records of one decision, durably; gives the offset of the first.

        They are committed when `high_watermark` is above the last; until then nobody may be told that they are true.
        Errors: KafkaError NOT_CONTROLLER when this member does not lead or is not ready, KAFKA_STORAGE_ERROR, and then
        nothing was appended.
        """
        state = self._state
        if not isinstance(state, Leader) or not self.is_ready:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The active controller appears to be node {self.leader}.")
        end = self._log.end
        try:
            first = self._log.append(records, self.epoch, now)
        except StorageError as error:
            self._say("error", f"{PARTITION_NAME}: {error.message}")
            if self._log.end != end:
                # What may be there or not must not be built upon: another leader finds out.
                self._attempt(lambda: self._become_resigned(state, now), now)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error
        self._tell("AppendRecord")
        self._advance_high_watermark(state, now)
        self._answer_waiting()
        return first

    def _advance_high_watermark(self, state: Leader, now: TimestampMs) -> None:
        """Commit what a majority has, once that reaches into this epoch."""
        ends = [self._log.durable_end, *(max(0, progress.end) for progress in state.voters.values())]
        moved = next_commit(self._high_watermark, majority_end(ends), state.epoch_start)
        if moved != self._high_watermark:
            self._high_watermark = moved
            self._tell("AdvanceHighWatermark")
            self._answer_waiting()

    def handle_fetch(self, request: FetchRequest, token: object, now: TimestampMs) -> None:
        """Serve a member's fetch, or a consumer's: records now, or when there are some, or nothing after max_wait_ms.

        A member that has what the leader does not have is told where they part, one that has too little is told of a
        snapshot. Answers INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
        NOT_LEADER_OR_FOLLOWER, each with the epoch and leader that this member knows; KAFKA_STORAGE_ERROR.
        """
        partition = messages.of_metadata_by_id(request.topics)
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            self._answers.append((token, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)))
        elif partition is None:
            self._answers.append((token, FetchResponse(error_code=ErrorCode.INVALID_REQUEST)))
        else:
            replica = messages.replica_of(request)
            response, urgent = self._read_for(partition, request, replica, now)
            if urgent or request.max_wait_ms == 0 or len(self._waiting) >= MAX_WAITING:
                self._answers.append((token, response))
            else:
                deadline = now + request.max_wait_ms
                self._waiting.append(_Waiting(token, replica, request, partition, deadline))
        self._drive(now)

    def _fetch_error(self, partition: FetchRequest.FetchPartition, max_wait_ms: int, replica: NodeId) -> ErrorCode:
        epoch = partition.current_leader_epoch
        if (
            max_wait_ms < 0
            or partition.fetch_offset < 0
            or partition.last_fetched_epoch < 0
            or partition.last_fetched_epoch > epoch
            or replica == self.node
        ):
            return ErrorCode.INVALID_REQUEST
        return self._leader_error(epoch)

    def _leader_error(self, epoch: Epoch) -> ErrorCode:
        """What is wrong with a request that is for the leader of an epoch."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _read_for(
        self,
        partition: FetchRequest.FetchPartition,
        request: FetchRequest,
        replica: NodeId = NOBODY,
        now: TimestampMs | None = None,
    ) -> tuple[FetchResponse, bool]:
        """The answer to a fetch as of now, and whether there is reason to send it; `now` when the fetch has just come."""
        error = self._fetch_error(partition, request.max_wait_ms, replica)
        state = self._state
        if error is not ErrorCode.NONE or not isinstance(state, Leader):
            return messages.fetch_response(error, self.epoch, self._stored.leader), True
        verdict, epoch, end = self._log.compare(partition.fetch_offset, partition.last_fetched_epoch)
        records = b""
        if verdict is Verdict.IN_LINE:
            try:
                max_bytes = max(0, min(request.max_bytes, self.settings.fetch_max_bytes))
                records = self._log.read(partition.fetch_offset, max_bytes)
            except StorageError as failure:
                self._say("error", f"{PARTITION_NAME}: {failure.message}")
                return messages.fetch_response(ErrorCode.KAFKA_STORAGE_ERROR, self.epoch, self.node), True
            if now is not None:
                self.answer_fetch(state, replica, partition.fetch_offset, now)
        high_watermark = self._high_watermark if self.is_ready else -1
        response = messages.fetch_response(
            ErrorCode.NONE, self.epoch, self.node, high_watermark=high_watermark, log_start=self._log.start,
            records=records, diverging=(epoch, end) if verdict is Verdict.DIVERGING else None,
            snapshot=(epoch, end) if verdict is Verdict.SNAPSHOT else None,
        )  # fmt: skip
        news = verdict is not Verdict.IN_LINE or bool(records) or partition.high_watermark < high_watermark
        return response, news

    def answer_fetch(self, state: Leader, replica: NodeId, end: Offset, now: TimestampMs) -> None:
        """A member has everything below `end`, durably: remember it, and commit what a majority has now."""
        if replica in state.voters:
            state.voters[replica].fetched(end, self._log.end, now)
            self._tell("AnswerFetch", {"from": replica, "to": self.node, "end": end})
            self._note_following(state, replica, now)
            self._advance_high_watermark(state, now)
        elif replica >= 0:
            self._drop_silent_observers(state, now)
            if replica in state.observers or len(state.observers) < MAX_OBSERVERS:
                state.observers.setdefault(replica, Progress()).fetched(end, self._log.end, now)

    def _note_following(self, state: Leader, voter: NodeId, now: TimestampMs) -> None:
        """A voter is there: when a majority has been, the leader may go on to lead."""
        if voter not in state.voters:
            return
        state.fetched.add(voter)
        if len(state.fetched) >= self.settings.majority - 1:
            state.fetched.clear()
            state.check_quorum_at = now + self.settings.check_quorum_ms

    def _drop_silent_observers(self, state: Leader, now: TimestampMs) -> None:
        for observer in [id for id, seen in state.observers.items() if now - seen.last_fetch >= OBSERVER_SESSION_MS]:
            del state.observers[observer]

    def _answer_waiting(self) -> None:
        """Answer the fetches for which there is something now."""
        still: list[_Waiting] = []
        for waiting in self._waiting:
            response, urgent = self._read_for(waiting.partition, waiting.request)
            if urgent:
                self._answers.append((waiting.token, response))
            else:
                still.append(waiting)
        self._waiting = still

    def _refuse_waiting(self) -> None:
        """It leads no longer: who waits must look for the next leader."""
        for waiting in self._waiting:
            refusal = messages.fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, self._stored.leader)
            self._answers.append((waiting.token, refusal))
        self._waiting = []

    def handle_describe_quorum(self, now: TimestampMs) -> DescribeQuorumResponse:
        """How far every member is, as the leader knows; NOT_LEADER_OR_FOLLOWER from others. `nodes` is the caller's."""
        state = self._state
        if not isinstance(state, Leader):
            refusal = DescribeQuorumResponse.PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return messages.describe_response(refusal)
        self._drop_silent_observers(state, now)
        own = DescribeQuorumResponse.ReplicaState(
            replica_id=self.node, replica_directory_id=self._directory, log_end_offset=self._log.end,
            last_fetch_timestamp=now, last_caught_up_timestamp=now,
        )  # fmt: skip
        partition = DescribeQuorumResponse.PartitionData(
            leader_id=self.node, leader_epoch=self.epoch, high_watermark=self._high_watermark if self.is_ready else -1,
            current_voters=[own, *_described(state.voters)], observers=_described(state.observers),
        )  # fmt: skip
        return messages.describe_response(partition)

    # ---- following

    def _fetch_from_leader(self, state: Follower, now: TimestampMs) -> None:
        """Fetch; while the leader does not answer, ask somebody else, who may know another."""
        leader = self._stored.leader
        if self._requests.is_pausing(leader):
            self._fetch_from_anybody(now)
        elif not self._requests.any_open:
            receipt = state.receipt
            if receipt is None:
                self._send(leader, self._fetch_request(), now)
            else:
                request = messages.fetch_snapshot_request(
                    self.cluster_id, self.node, self._directory, self.epoch, receipt.id, receipt.size,
                    self.settings.snapshot_chunk_bytes,
                )  # fmt: skip
                self._send(leader, request, now)

    def _fetch_from_anybody(self, now: TimestampMs) -> None:
        """Ask any voter: if it does not lead, its refusal says who does."""
        if self._requests.any_open:
            return
        candidates = [voter for voter in self._others if self._requests.may_ask(voter)]
        if candidates:
            peer = candidates[self._chance.randrange(0, len(candidates))]
            self._send(peer, self._fetch_request(), now)

    def _fetch_request(self) -> FetchRequest:
        return messages.fetch_request(
            self.cluster_id, self.node, self._directory, self.epoch, (self._log.last_epoch, self._log.end),
            self._high_watermark, max_wait_ms=self.settings.fetch_max_wait_ms,
            max_bytes=self.settings.fetch_max_bytes,
        )  # fmt: skip

    def _on_fetch(self, peer: NodeId, request: FetchRequest, response: FetchResponse, now: TimestampMs) -> None:
        answer = messages.of_metadata_by_id(response.responses) if response.error_code == ErrorCode.NONE else None
        if answer is None:
            self._requests.pause(peer, now)
            return
        said = answer.current_leader
        if not self._heeds(peer, answer.error_code, said.leader_epoch, said.leader_id, now):
            return
        state = self._state
        asked = request.topics[0].partitions[0]
        if not isinstance(state, Follower) or peer != self._stored.leader:
            return
        if (asked.last_fetched_epoch, asked.fetch_offset) != (self._log.last_epoch, self._log.end):
            return
        if self.apply_fetch(state, answer, now):
            state.deadline = now + self.settings.fetch_timeout_ms
            state.has_fetched = True
        else:
            self._requests.pause(peer, now)

    def apply_fetch(self, state: Follower, answer: FetchResponse.PartitionData, now: TimestampMs) -> bool:
        """Do as the leader says: append its records, cut what it does not have, or fetch a snapshot; False if it cannot be.

        Errors: StorageError.
        """
        if answer.diverging_epoch.epoch >= 0 or answer.diverging_epoch.end_offset >= 0:
            done = self._cut(answer.diverging_epoch, now)
        elif answer.snapshot_id.epoch >= 0 or answer.snapshot_id.end_offset >= 0:
            done = self._begin_snapshot(state, answer.snapshot_id)
        else:
            done = self._append_fetched(answer, now)
        if done:
            self._tell("ApplyFetch", {"from": self._stored.leader, "to": self.node})
        return done

    def _cut(self, diverging: FetchResponse.EpochEndOffset, now: TimestampMs) -> bool:
        offset = self._log.truncation_offset(diverging.epoch, diverging.end_offset)
        if offset < self._high_watermark:
            self._say(
                "error",
                f"{PARTITION_NAME}: the leader of epoch {self.epoch} asks to cut the log at {offset}, below what is "
                f"committed ({self._high_watermark}): refused",
            )
            return False
        if offset >= self._log.end:
            return False
        self._log.truncate(offset, now)
        return True

    def _begin_snapshot(self, state: Follower, said: FetchResponse.SnapshotId) -> bool:
        id = SnapshotId(said.epoch, said.end_offset)
        if id.epoch < 0 or id.end_offset <= self._high_watermark or id <= (self._log.last_epoch, self._log.end):
            self._say("error", f"{PARTITION_NAME}: the leader offers snapshot {id.file_name}, which is behind: refused")
            return False
        state.receipt = self._log.snapshots.receive(id)
        return True

    def _append_fetched(self, answer: FetchResponse.PartitionData, now: TimestampMs) -> bool:
        before = self._log.end
        records = messages.bytes_of(answer.records)
        if records:
            try:
                self._log.append_fetched(records, self.epoch, now, durably=self._is_voter)
            except StorageError:
                raise
            except (RecordsError, LogError) as error:
                self._say("error", f"{PARTITION_NAME}: records of the leader of epoch {self.epoch}: {error}")
            if self._log.end == before:
                return False
        if answer.high_watermark >= 0:
            self._high_watermark = max(self._high_watermark, min(answer.high_watermark, self._log.end))
        return True

    # ---- snapshots

    def write_snapshot(self, end_offset: Offset, records: Iterable[Message], now: TimestampMs) -> SnapshotId | None:
        """Keep what the committed log below an offset amounts to, so that the log may be cut from its start.

        `end_offset` is `high_watermark`, or an earlier one. None where a snapshot already reaches so far.
        Errors: ValueError for an offset that is not committed or inside of a batch; StorageError, and there is none.
        """
        if not self._may_replace(end_offset):
            raise ValueError(f"a snapshot up to {end_offset}, where {self._high_watermark} is committed")
        id = self._log.write_snapshot(end_offset, records, now)
        if id is not None:
            self._attempt(lambda: self._clean(now), now)
        return id

    def _may_replace(self, end_offset: Offset) -> bool:
        """What is not committed may still go: no snapshot must hold it."""
        return end_offset <= self._high_watermark

    def _clean(self, now: TimestampMs) -> None:
        settings = self.settings
        try:
            self._log.clean(now, self._high_watermark, settings.retention_bytes, settings.retention_ms)
        except CorruptFile as error:
            self._say("error", str(error))

    def handle_fetch_snapshot(self, request: FetchSnapshotRequest, now: TimestampMs) -> FetchSnapshotResponse:
        """A piece of a snapshot, from a position on.

        Answers as `handle_fetch`; SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION.
        """
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = messages.of_metadata(request.topics)
        if asked is None:
            return self._refuse_piece(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = self._leader_error(asked.current_leader_epoch)
        state = self._state
        if error is not ErrorCode.NONE or not isinstance(state, Leader):
            return self._refuse_piece(error)
        try:
            response = self._piece(asked, request.max_bytes)
        except StorageError as failure:
            self._say("error", f"{PARTITION_NAME}: {failure.message}")
            return self._refuse_piece(ErrorCode.KAFKA_STORAGE_ERROR)
        self._note_following(state, request.replica_id, now)
        self._drive(now)
        return response

    def _refuse_piece(self, error: ErrorCode) -> FetchSnapshotResponse:
        return messages.fetch_snapshot_response(error, self.epoch, self._stored.leader)

    def _piece(self, asked: FetchSnapshotRequest.PartitionSnapshot, max_bytes: int) -> FetchSnapshotResponse:
        snapshots = self._log.snapshots
        id = SnapshotId(asked.snapshot_id.epoch, asked.snapshot_id.end_offset)
        if id not in snapshots.ids or id == BOOTSTRAP:
            return self._refuse_piece(ErrorCode.SNAPSHOT_NOT_FOUND)
        size = snapshots.size_bytes(id)
        if not 0 <= asked.position < size:
            return self._refuse_piece(ErrorCode.POSITION_OUT_OF_RANGE)
        length = max(1, min(max_bytes, self.settings.snapshot_chunk_bytes))
        data = snapshots.read(id, asked.position, length)
        return messages.fetch_snapshot_response(
            ErrorCode.NONE, self.epoch, self.node, id=id, size=size, position=asked.position, data=data
        )

    def _on_fetch_snapshot(
        self, peer: NodeId, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now: TimestampMs
    ) -> None:
        answer = messages.of_metadata(response.topics) if response.error_code == ErrorCode.NONE else None
        if answer is None:
            self._requests.pause(peer, now)
            return
        said = answer.current_leader
        heeded = self._heeds(peer, answer.error_code, said.leader_epoch, said.leader_id, now)
        state = self._state
        if not isinstance(state, Follower) or state.receipt is None:
            return
        if heeded and self._take_piece(state, answer, now):
            state.deadline = now + self.settings.fetch_timeout_ms
            state.has_fetched = True
            return
        # The leader has dropped the snapshot, or sends what does not fit: fetch again, and be told of another.
        state.receipt.abandon()
        state.receipt = None
        self._requests.pause(peer, now)

    def _take_piece(self, state: Follower, answer: FetchSnapshotResponse.PartitionSnapshot, now: TimestampMs) -> bool:
        """The next piece of a snapshot; with the last one the log begins anew. False if it does not fit."""
        receipt, data = state.receipt, messages.bytes_of(answer.unaligned_records)
        assert receipt is not None
        id = SnapshotId(answer.snapshot_id.epoch, answer.snapshot_id.end_offset)
        if id != receipt.id or answer.position != receipt.size:
            return False
        if not data or receipt.size + len(data) > answer.size:
            return False
        receipt.append(data)
        if receipt.size < answer.size:
            return True
        return self._install(state, now)

    def _install(self, state: Follower, now: TimestampMs) -> bool:
        receipt = state.receipt
        assert receipt is not None
        try:
            self._log.install(receipt, now)
        except (CorruptFile, ValueError) as error:
            self._say("error", f"{PARTITION_NAME}: {error}")
            return False
        state.receipt = None
        self._high_watermark = max(self._high_watermark, receipt.id.end_offset)
        self._snapshot_notice = True
        return True

    # ---- asking

    def _send(self, peer: NodeId, request: Message, now: TimestampMs) -> None:
        self._requests.asked(peer, request, now)
        self._sends.append((peer, request))

    def receive(self, peer: NodeId, request: Message, response: Message, now: TimestampMs) -> None:
        """An answer has come to a request of `take_sends`; to one that is not open any more it is ignored."""
        if self._requests.close(peer, request):
            self._attempt(lambda: _ANSWERS[type(request)](self, peer, request, response, now), now)
        self._drive(now)

    def unreachable(self, peer: NodeId, request: Message, now: TimestampMs) -> None:
        """A request of `take_sends` will not be answered."""
        if self._requests.close(peer, request):
            self._requests.pause(peer, now)
        self._drive(now)

    # ---- trace

    def _tell(self, action: str, arguments: Mapping[str, Any] | None = None) -> None:
        """One line of the trace: the step, its arguments as the specification names them, and the state after it."""
        if self.trace is not None:
            state: dict[str, Any] = {
                "node": self.node,
                "partition": PARTITION_NAME,
                "from": self.node,
                "epoch": self.epoch,
                "leo": self._log.end,
                "highWatermark": self._high_watermark,
            }
            self.trace(action, state | dict(arguments or {}))


def _described(members: Mapping[NodeId, Progress]) -> list[DescribeQuorumResponse.ReplicaState]:
    return [
        DescribeQuorumResponse.ReplicaState(
            replica_id=member, log_end_offset=progress.end, last_fetch_timestamp=progress.last_fetch,
            last_caught_up_timestamp=progress.caught_up,
        )
        for member, progress in sorted(members.items())
    ]  # fmt: skip


_ANSWERS: dict[type[Message], Callable[[Quorum, NodeId, Any, Any, TimestampMs], None]] = {
    VoteRequest: Quorum._on_vote,  # pyright: ignore[reportPrivateUsage]
    BeginQuorumEpochRequest: Quorum._on_begin,  # pyright: ignore[reportPrivateUsage]
    EndQuorumEpochRequest: Quorum._on_end,  # pyright: ignore[reportPrivateUsage]
    FetchRequest: Quorum._on_fetch,  # pyright: ignore[reportPrivateUsage]
    FetchSnapshotRequest: Quorum._on_fetch_snapshot,  # pyright: ignore[reportPrivateUsage]
}
"""Who reads the answer to a request."""
