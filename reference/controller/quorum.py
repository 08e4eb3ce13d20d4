"""One member of the metadata quorum: it elects the active controller, and decides which records are committed.

# What it is for

The cluster's metadata are one log. One *voter* leads and appends; the others, and the *observers* (brokers without a vote),
fetch from it. A record is *committed* when a majority of the voters has it durably, together with a record of the leader's own
epoch. A committed record is never lost and never changes, and a node builds its image from committed records only. Every leader
has its own epoch, larger than all before. A leader that learns of a larger epoch stops leading.

# Inputs and outputs

`Quorum` is a state machine: messages and time in, messages out. It never waits, and its randomness comes from a generator.

- Requests of other members: `handle_vote`, `handle_begin_quorum_epoch`, `handle_end_quorum_epoch`, `handle_fetch_snapshot`,
  `handle_describe_quorum` return the response at once. `handle_fetch` is a long poll: `take_answers` returns its response now
  or later, with the request's token; `forget` drops the token of a closed connection.
- Own requests: `take_sends` returns (peer, request body). The caller sends each of them, and reports the result by
  `receive(peer, request, response, now)` or `unreachable(peer, request, now)`, with the same request object. A request without
  a result expires after request_timeout_ms. The leader may delay a fetch, so it should not block other requests to it.
- Time: `tick(now)`, not later than `next_deadline()`.
- The leader: `append(records, now)`, if it `is_ready`; `resign(now)` before a clean shutdown.
- The committed state: `committed(start)` returns the metadata records from an offset up to `high_watermark`. If
  `take_snapshot_notice()` is true (at the start, if there is a snapshot, and after a snapshot from the leader), begin again
  with `snapshot_records()` and continue with `committed(latest_snapshot.end_offset)`. `write_snapshot` shortens the log.

A node's loop is, after every call: take sends and answers; then

    if quorum.take_snapshot_notice(): image = image of quorum.snapshot_records(); applied = quorum.latest_snapshot.end_offset
    for offset, record in quorum.committed(applied): image.apply(record)
    applied = quorum.high_watermark

A leader whose decisions depend on uncommitted records reads them by `appended(start)`. When it is deposed (`epoch` or
`is_leader` changes), it returns to the committed records.

# What is durable, and when

Epoch, vote and leader are flushed (`quorum-state`) before the role changes, and so before any message is sent. A voter flushes
fetched records before its next fetch, because that fetch's offset acknowledges them. The leader counts itself only with its
flushed records. After a disk failure the step has not happened: a handler answers KAFKA_STORAGE_ERROR, `append` raises it, and
everything else is retried after STORAGE_PAUSE_MS. After a failure within a truncation the member `is_broken`: the log's state
is unknown, and only a restart can recover it.

# Known deviations from Apache Kafka 4.3, whose org.apache.kafka.raft.KafkaRaftClient is the model (tests/controller/drawn_quorum)

- With the voters of the configuration (kraft.version 0), a non-voter's vote or epoch is refused with INCONSISTENT_VOTER_SET (as
  Kafka did up to 3.8) before its epoch is compared: it cannot depose a leader.
- The leader flushes before it answers delayed fetches: no node has a record durably before it. Fetches count on arrival.
- A prospective member that knows a leader follows it again after that leader's BeginQuorumEpoch.
- A follower whose leader reports by EndQuorumEpoch that it resigned grants pre-votes at once: the best candidate need not wait.
- A follower that had voted for itself follows its leader after a restart; in Kafka it requests votes again.
- A leader that was removed from the voters resigns when that record is committed, also if the request has timed out.
- A member that was removed may be a candidate until it learns that the removal is committed (`Member.may_stand`).

# Who votes

The voters are those of the configuration, or of the log (KIP-853). `quorum_voters` has their history, `quorum_changing` the
leader's part in a change, `quorum_following` a follower's requests about itself. The latest set in this member's log is in
force, committed or not.

# Where it is

`Member` (`quorum_member`) has what all roles share: the log, the stored state, the open requests. In each epoch the role is one
value, `state`, which is replaced with the role and has all state of that role alone: `Leader` in `quorum_leading`, `Follower`
in `quorum_following`, `Prospective` and `Candidate` in `quorum_electing`. This module passes requests and responses to it.

Source: KIP-595, KIP-630, KIP-853, KIP-996, KIP-1166; org.apache.kafka.raft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference.controller import quorum_changing as changing
from reference.controller import quorum_messages as messages
from reference.controller.metadata_records import NEWEST_LEVEL
from reference.controller.quorum_electing import (
    Candidate,
    Nominee,
    become_prospective,
    become_unattached,
    decide_vote,
    learn_from_leader,
    learn_from_response,
    vote_error,
)
from reference.controller.quorum_following import Follower, become_follower, fetch_from_any_voter
from reference.controller.quorum_leading import Leader, fetch_error, refuse_fetch, refuse_piece
from reference.controller.quorum_member import Member
from reference.controller.quorum_roles import NEVER, Resigned, Role, RoleState, Unattached
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from reference.protocol.messages.vote import VoteRequest, VoteResponse
from reference.protocol.primitives import NO_NODE, NodeId, Offset, TimestampMs
from reference.protocol.schema import Message
from reference.storage.errors import StorageError


@dataclass(eq=False)
class Quorum(Member):
    """One voter or observer, with its role; the only voter of a quorum becomes the leader at once."""

    _is_shutting_down: bool = field(init=False, default=False)

    def __post_init__(self, now: TimestampMs) -> None:
        """Start from the stored state. Errors: StorageError; CorruptFile that names the file."""
        super().__post_init__(now)
        self.state = self._first_role(now)
        self.trace_step("Restart", {"voters" if self.is_static else "firstVoters": [*self.voters.ids]})
        if self.is_only_voter:
            become_prospective(self, now)
        self._drive(now)

    def _first_role(self, now: TimestampMs) -> RoleState:
        """The role after a start: a former leader never leads its epoch again, because it may have lost the end of its log."""
        stored, others = self.stored, self.others
        if stored.leader in others:
            timeout = TimestampMs(now + self.settings.fetch_timeout_ms)
            return Follower(self, timeout, next_report=timeout)
        if not self.may_stand:
            return Unattached(NEVER)
        if not others:
            return Unattached(now)
        if stored.leader == self.node:
            return Resigned(self.election_deadline(now), [], set(others))
        if stored.voted == self.node:
            return Candidate(self, self.election_deadline(now))
        return Unattached(self.election_deadline(now))

    @property
    def leading(self) -> Leader | None:
        """The leader's role; None if this member does not lead."""
        return self.state if isinstance(self.state, Leader) else None

    @property
    def is_ready(self) -> bool:
        """Whether this member leads and may decide: a record of its epoch is committed, so it has all committed records."""
        return self.leading is not None and self.leading.is_ready

    # ---- time

    def tick(self, now: TimestampMs) -> None:
        """Do the work that is due: elections, resignation, requests, responses to delayed fetches, cleaning."""
        if self.leading is not None:
            self.leading.answer_overdue(now)
        if len(self.log.snapshots.ids) > 1 and now >= self.log.next_cleaning:
            self.attempt(lambda: self.clean(now), now)
        self._drive(now)

    def next_deadline(self) -> TimestampMs | None:
        """The time of the next work for `tick`; None if there is none."""
        times = [waiting.deadline for waiting in self.leading.waiting] if self.leading is not None else []
        if self.log.is_broken:
            return min(times, default=None)
        if self._paused_until is not None:
            return min([*times, self._paused_until])
        if self.state.deadline != NEVER and not self._stays():
            times.append(self.state.deadline)
        if (request := self.requests.next_deadline()) is not None:
            times.append(request)
        if len(self.log.snapshots.ids) > 1:
            times.append(self.log.next_cleaning)
        return min(times, default=None)

    def _drive(self, now: TimestampMs) -> None:
        """Do the role's work that is due, and the next role's if the role changes."""
        if self.log.is_broken or (self._paused_until is not None and now < self._paused_until):
            return
        self._paused_until = None
        self.requests.tick(now)
        for _ in range(len(Role)):
            before = self.state
            self.attempt(lambda: self._act(now), now)
            if self.state is before or self._paused_until is not None:
                return

    def _act(self, now: TimestampMs) -> None:
        state = self.state
        overdue = now >= state.deadline and not self._stays()
        match state:
            case Leader():
                state.lead(now)
            case Nominee() if overdue:
                state.lose(now)
            case Nominee():
                state.ask_for_votes(now)
            case Follower() if overdue:
                become_prospective(self, now)
            case Follower():
                state.fetch_from_leader(now)
            case Unattached() if overdue and self.may_stand:
                become_prospective(self, now)
            case Unattached():
                fetch_from_any_voter(self, now)
            case Resigned() if overdue:
                self.leave_epoch(now)
            case Resigned():
                self._announce_resignation(state, now)
            case _:
                raise AssertionError(f"no work for {state}")

    def _stays(self) -> bool:
        """Whether the deadline is ignored: a member in shutdown begins no election, and an observer follows its known leader."""
        role = self.state.role
        follows_without_a_vote = role is Role.FOLLOWER and not self.may_stand
        return follows_without_a_vote or (self._is_shutting_down and role is not Role.LEADER)

    # ---- resigning

    def resign(self, now: TimestampMs) -> None:
        """Stop leading and begin no election, before a clean shutdown. The caller sends the messages before it stops."""
        self._is_shutting_down = True
        if self.leading is not None:
            self.leading.resign(now)
        self._drive(now)

    def leave_epoch(self, now: TimestampMs) -> None:
        """Become unattached in the next epoch, after a resignation that no other voter followed with an election."""
        become_unattached(self, self.epoch + 1, NO_NODE, now)
        self.trace_step("LeaveEpoch")

    def _announce_resignation(self, state: Resigned, now: TimestampMs) -> None:
        for voter in sorted(state.unaware):
            if self.requests.may_ask(voter):
                successors = [(id, self.voters.directory_of(id)) for id in state.successors]
                request = messages.end_request(self.asker, successors)
                self.name_itself(request)
                self.send(voter, request, now)

    # ---- responses of others

    def receive(self, peer: NodeId, request: Message, response: Message, now: TimestampMs) -> None:
        """Handle a response to a request of `take_sends`; ignore it if the request is no longer open."""
        if self.requests.close(peer, request) and not self.log.is_broken:
            self.attempt(lambda: self._read_answer(peer, request, response, now), now)
        self._drive(now)

    def _read_answer(self, peer: NodeId, request: Message, response: Message, now: TimestampMs) -> None:
        match request, response:
            case ApiVersionsRequest(), ApiVersionsResponse():
                if self.leading is not None:
                    changing.on_api_versions(self.leading, peer, response, now)
            case UpdateRaftVoterRequest(), UpdateRaftVoterResponse():
                said = response.current_leader
                code = ErrorCode.NONE if response.error_code == ErrorCode.UNSUPPORTED_VERSION else response.error_code
                is_valid = learn_from_response(self, peer, code, said.leader_epoch, said.leader_id, now, response)
                if isinstance(self.state, Follower) and is_valid:
                    self.state.on_update_raft_voter(now)
            case AddRaftVoterRequest() | RemoveRaftVoterRequest(), _:
                pass  # the log will have the result
            case _ if isinstance(response, messages.ABOUT_THE_PARTITION.get(type(request), ())):
                self._read_partition(peer, request, response, now)
            case _:
                self.requests.pause(peer, now)

    def _read_partition(self, peer: NodeId, request: Message, response: Message, now: TimestampMs) -> None:
        """Learn the leader from a response, and pass the rest to the role that sent the request."""
        answer = messages.answered(response)
        if answer is None:
            if not isinstance(request, BeginQuorumEpochRequest):
                self.requests.pause(peer, now)
            return
        said = getattr(answer, "current_leader", answer)
        is_valid = learn_from_response(self, peer, answer.error_code, said.leader_epoch, said.leader_id, now, response)
        state = self.state
        match state, request:
            case Follower(), FetchSnapshotRequest():
                state.on_fetch_snapshot(peer, answer, is_valid, now)
            case _ if not is_valid:
                pass
            case Follower(), FetchRequest() if peer == self.stored.leader:
                state.on_fetch(peer, request, answer, now)
            case _, FetchRequest() if not self.is_static:
                self.requests.pause(peer, now)
            case Nominee(), VoteRequest():
                if request.topics[0].partitions[0].pre_vote == (state.role is Role.PROSPECTIVE):
                    state.on_vote(peer, answer.vote_granted, now)
            case Resigned(), EndQuorumEpochRequest():
                state.unaware.discard(peer)
            case _:
                pass  # a former role sent the request

    def unreachable(self, peer: NodeId, request: Message, now: TimestampMs) -> None:
        """Close a request of `take_sends` that will get no response."""
        if self.requests.close(peer, request):
            self.requests.pause(peer, now)
        if isinstance(request, ApiVersionsRequest) and self.leading is not None:
            changing.on_no_api_versions(self.leading, peer)
        self._drive(now)

    # ---- requests of other members

    def handle_vote(self, request: VoteRequest, now: TimestampMs) -> VoteResponse:
        """Answer a request for this member's vote or pre-vote.

        Error codes in the response: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, INCONSISTENT_VOTER_SET for a non-voter,
        FENCED_LEADER_EPOCH, INVALID_VOTER_KEY for a request to another voter, KAFKA_STORAGE_ERROR.
        """
        if self.is_other_cluster(request.cluster_id):
            return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = messages.of_metadata(request.topics)
        if asked is None:
            return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
        error = vote_error(self, asked)
        granted = False
        if error is ErrorCode.NONE:
            try:
                error, granted = decide_vote(self, request, asked, now)
            except StorageError as failure:
                self.say_error(failure.message)
                error = ErrorCode.KAFKA_STORAGE_ERROR
        response = self.with_leader(messages.vote_response(error, self.epoch, self.stored.leader, granted=granted))
        self._drive(now)
        return response

    def _learn_from_report(
        self, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now: TimestampMs
    ) -> tuple[ErrorCode, Any | None]:
        """The error code of a leader's report about its epoch, and the report; None if it is not read."""
        if self.is_other_cluster(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, None
        reported = messages.of_metadata(request.topics)
        if reported is None:
            return ErrorCode.INVALID_REQUEST, None
        return learn_from_leader(self, reported, request.leader_endpoints, now), reported

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, now: TimestampMs) -> BeginQuorumEpochResponse:
        """Follow the leader that reports its epoch. Error codes as for `handle_vote`."""
        error, reported = self._learn_from_report(request, now)
        if reported is None:
            return BeginQuorumEpochResponse(error_code=error)
        if error is ErrorCode.NONE and not self.is_meant(request.voter_id, reported.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE and self.role is Role.PROSPECTIVE and reported.leader_id == self.stored.leader:
            self.attempt(lambda: become_follower(self, self.epoch, reported.leader_id, now), now)
        response = self.voter_response(BeginQuorumEpochResponse, error)
        self._drive(now)
        return response

    def handle_end_quorum_epoch(self, request: EndQuorumEpochRequest, now: TimestampMs) -> EndQuorumEpochResponse:
        """Let a follower become a candidate after its leader resigned, the best log first. Errors: as `handle_vote`."""
        error, reported = self._learn_from_report(request, now)
        if reported is None:
            return EndQuorumEpochResponse(error_code=error)
        if error is ErrorCode.NONE and isinstance(self.state, Follower) and self.stored.leader == reported.leader_id:
            self.state.leader_resigned(messages.successors_in(reported), now)
        response = self.voter_response(EndQuorumEpochResponse, error)
        self._drive(now)
        return response

    def handle_fetch(self, request: FetchRequest, token: object, now: TimestampMs) -> None:
        """Answer a fetch of a member or a consumer: with records now, when there are some, or without records after
        max_wait_ms.

        A member whose log diverges receives the diverging epoch; one whose end is below the leader's log start, a snapshot id.
        Error codes: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
        NOT_LEADER_OR_FOLLOWER, each with this member's epoch and leader; KAFKA_STORAGE_ERROR.
        """
        partition = messages.of_metadata_by_id(request.topics)
        if self.is_other_cluster(request.cluster_id):
            self.answers.append((token, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)))
        elif partition is None:
            self.answers.append((token, FetchResponse(error_code=ErrorCode.INVALID_REQUEST)))
        elif self.leading is not None:
            self.leading.take_fetch(request, partition, token, now)
        else:
            error = fetch_error(self, partition, request.max_wait_ms, messages.replica_of(request))
            self.answers.append((token, refuse_fetch(self, error)))
        self._drive(now)

    def forget(self, token: object) -> None:
        """Drop a delayed fetch that no longer needs a response."""
        if self.leading is not None:
            self.leading.waiting = [waiting for waiting in self.leading.waiting if waiting.token != token]

    def handle_fetch_snapshot(self, request: FetchSnapshotRequest, now: TimestampMs) -> FetchSnapshotResponse:
        """A piece of a snapshot, from a position on.

        Error codes as for `handle_fetch`; SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION.
        """
        if self.is_other_cluster(request.cluster_id):
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = messages.of_metadata(request.topics)
        if asked is None:
            return refuse_piece(self, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = self.leader_error(asked.current_leader_epoch)
        if error is not ErrorCode.NONE or self.leading is None:
            return refuse_piece(self, error)
        response = self.leading.send_piece(request, asked, now)
        self._drive(now)
        return response

    def handle_describe_quorum(self, body: DescribeQuorumRequest, now: TimestampMs) -> DescribeQuorumResponse:
        """The log end offsets of all members, as the leader knows them. The caller adds `nodes`.

        Error codes: UNKNOWN_TOPIC_OR_PARTITION for each partition of a request for other partitions than the metadata log's;
        NOT_LEADER_OR_FOLLOWER from a member that does not lead.
        """
        if refused := messages.unknown_described(body):
            return refused
        if self.leading is not None:
            return messages.describe_response(self.leading.describe(now))
        refusal = DescribeQuorumResponse.PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return messages.describe_response(refusal)

    # ---- what the active controller asks of the leader

    def append(self, records: Sequence[Message], now: TimestampMs, level: int = NEWEST_LEVEL) -> Offset:
        """Append the records of one decision durably, at a level of metadata.version; return the offset of the first.

        They are committed when `high_watermark` is above the last one; no response may depend on them before.
        Errors: KafkaError NOT_CONTROLLER if this member does not lead or is not ready, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE
        or RECORD_LIST_TOO_LARGE if no batch can hold them; then nothing was appended.
        """
        if self.leading is None or not self.is_ready:
            whose = f"The active controller appears to be node {self.leader}." if self.leader >= 0 else None
            raise KafkaError(ErrorCode.NOT_CONTROLLER, whose or "No controller appears to be active.")
        return self.leading.append(records, now, level)

    def handle_add_raft_voter(self, request: AddRaftVoterRequest, token: object, now: TimestampMs) -> None:
        """Make an observer a voter; `take_answers` returns the response when the new set is committed.

        The leader first requests the node's levels of kraft.version; the node must have caught up with this leader's log.
        Error codes: INCONSISTENT_CLUSTER_ID, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, UNSUPPORTED_VERSION with kraft.version 0,
        DUPLICATE_VOTER, REQUEST_TIMED_OUT if another change, the epoch's first record or the new voter is not ready in time.
        """
        self._change_voters(request, token, lambda leader: changing.add_voter(leader, request, token, now))

    def handle_remove_raft_voter(self, request: RemoveRaftVoterRequest, token: object, now: TimestampMs) -> None:
        """Make a voter an observer; `take_answers` returns the response when the new set is committed.

        A leader that removes itself then resigns. Error codes as for `handle_add_raft_voter`; VOTER_NOT_FOUND.
        """
        self._change_voters(request, token, lambda leader: changing.remove_voter(leader, request, token, now))
        self._drive(now)

    def _change_voters(
        self, request: AddRaftVoterRequest | RemoveRaftVoterRequest, token: object, step: Callable[[Leader], None]
    ) -> None:
        try:
            if self.is_other_cluster(request.cluster_id):
                raise KafkaError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{self.cluster_id}"',
                )
            if (error := self.leader_error(self.epoch)) is not ErrorCode.NONE:
                raise KafkaError(error)
            assert self.leading is not None
            step(self.leading)
        except KafkaError as error:
            self.answers.append((token, messages.change_response(request, error.code, error.message)))

    def handle_update_raft_voter(
        self, request: UpdateRaftVoterRequest, listener: str, now: TimestampMs
    ) -> UpdateRaftVoterResponse:
        """UpdateRaftVoter: a voter reports its endpoints and its range of kraft.version.

        With the voters of the configuration (kraft.version 0) the leader keeps the report in memory until kraft.version is
        raised.
        `listener` is the one of the controllers.
        An update that names the leader itself is refused; Kafka 4.3.1 and 4.4.0 exit (findings/voter_update_of_the_leader).
        Errors in the answer: INCONSISTENT_CLUSTER_ID, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER,
        INVALID_REQUEST, REQUEST_TIMED_OUT while another change or the epoch's first record is not committed, VOTER_NOT_FOUND.
        """
        code = self.leader_error(request.current_leader_epoch)
        if self.is_other_cluster(request.cluster_id):
            code = ErrorCode.INCONSISTENT_CLUSTER_ID
        elif self.leading is not None and code is ErrorCode.NONE:
            code = changing.update_voter(self.leading, request, listener, now)
        current = UpdateRaftVoterResponse.CurrentLeader(leader_id=self.stored.leader, leader_epoch=self.epoch)
        if (address := self.leader_address) is not None:
            current.host, current.port = address
        self._drive(now)
        return UpdateRaftVoterResponse(error_code=code, current_leader=current)

    def raise_kraft_version(self, level: int, now: TimestampMs, *, validate_only: bool = False) -> None:
        """Append the level and the voters durably; do nothing if the level is in force already.

        Errors: KafkaError NOT_CONTROLLER; INVALID_UPDATE_VERSION if a voter has not reported that it supports the level, and
        its directory; KAFKA_STORAGE_ERROR.
        """
        if self.leading is None or not self.is_ready:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No controller appears to be active.")
        if level == self.kraft_version:
            return
        voters = changing.reported_voters(self.leading, level)
        if not validate_only:
            self.leading.append_level(voters, level, now)
