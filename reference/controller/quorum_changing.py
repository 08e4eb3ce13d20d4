"""Changing the voters, as the leader: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853). See `quorum` for the whole.

A change is a record with the whole new set, in force as soon as it is appended. Three rules keep any two majorities that may
decide from missing each other:

- one change at a time, by one voter: the record before is committed first (`_change_error`);
- the leader has committed a record of its own epoch first: else a set that an earlier leader appended, and this one does not
  know, may still come back, and differ by two voters (the known mistake of Raft's first single-server changes);
- a leader that is no voter any more leads on until the record is committed, and does not count itself.

Source: KIP-853; org.apache.kafka.raft.internals.AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from reference.controller.quorum_member import Member
from reference.controller.quorum_roles import NEVER, Leader, Progress, VoterChange
from reference.controller.quorum_voters import FEATURE, LEVELS, Entry, Voter, VoterSet, endpoints_of, voter_records
from reference.protocol.errors import ErrorCode, KafkaError, name_of
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from reference.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from reference.protocol.primitives import NO_UUID, NodeId, TimestampMs
from reference.protocol.records.control import ControlType
from reference.protocol.schema import Message
from reference.storage.errors import StorageError

CAUGHT_UP_WITHIN_MS = 3_600_000
"""A new voter has fetched within this time (AddVoterHandler, LeaderState.isReplicaCaughtUp)."""

SOFTWARE_NAME = "tidegauge"

UNANSWERED = "Aborted add voter operation since API_VERSIONS returned an error"


class Changing(Member):
    """The leader's part in changes of the voters."""

    @abstractmethod
    def _advance_high_watermark(self, state: Leader, now: TimestampMs) -> None: ...

    @abstractmethod
    def _answer_waiting(self) -> None: ...

    # ---- the sets

    def _own_voter(self) -> Voter | None:
        """What the voters' record is to say of this node; None where the node is no controller."""
        endpoints = self.settings.endpoints
        return Voter(self.node, self._directory, endpoints, LEVELS) if endpoints else None

    def _voters_at_start(self) -> Sequence[tuple[ControlType, Message]]:
        """What comes with the first record of an epoch: the voters, where the log lacks them or this node's entry is old."""
        own, history = self._own_voter(), self._log.history
        if history.level == 0:
            return []
        updated = history.voters if own is None else history.voters.updated(own) or history.voters
        if history.offset >= 0 and updated.get(self.node) == history.voters.get(self.node):
            return []
        return voter_records(Entry(self._log.end, updated, history.level))

    def _append_voters(
        self,
        state: Leader,
        voters: VoterSet,
        now: TimestampMs,
        change: VoterChange | None = None,
        level: int | None = None,
    ) -> None:
        """Append a new set, and count by it from now on; `change` is waited for until the set is committed.

        `level` is what kraft.version is raised to by it: the voters' progress, of which no directory was known, is forgotten.

        Errors: KafkaError KAFKA_STORAGE_ERROR, and nothing is waited for.
        """
        end = self._log.end
        try:
            self._log.append_voters(voters, self.epoch, now, level)
        except StorageError as error:
            self._say("error", error.message)
            if self._log.end != end:
                self._attempt(lambda: self._become_resigned(state, now), now)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error
        if change is not None:
            change.offset, state.change = end, change
        if level is not None:
            state.voters = {}
        self._count_by(state, voters, now)
        if level is None:
            self._trace_step("AppendVoters", {"voters": sorted(voters.ids)})
        else:  # the same nodes vote as before
            self._trace_step("AppendRecord")
        self._advance_high_watermark(state, now)
        self._answer_waiting()

    def _count_by(self, state: Leader, voters: VoterSet, now: TimestampMs) -> None:
        """Take over what is known of each voter's progress; who is no voter any more is an observer."""
        known = {**state.observers, **state.voters}
        former = {id: progress for id, progress in state.voters.items() if not voters.is_voter(id, progress.directory)}
        state.voters = {}
        for id in self._others:
            directory, progress = voters.directory_of(id), known.get(id)
            matches = progress is not None and progress.directory == directory
            state.voters[id] = progress if matches and progress is not None else Progress(directory)
            if matches:
                state.observers.pop(id, None)
        for id, progress in former.items():
            state.observers.setdefault(id, progress)
        state.fetched &= state.voters.keys()
        if not state.voters:
            state.check_quorum_at = state.begin_epoch_at = NEVER
        elif state.check_quorum_at == NEVER:
            state.check_quorum_at, state.begin_epoch_at = TimestampMs(now + self.settings.check_quorum_ms), now

    # ---- requests

    def handle_add_raft_voter(self, request: AddRaftVoterRequest, token: object, now: TimestampMs) -> None:
        """Make an observer a voter; the response comes out of `take_answers`, when the new set is committed.

        The node is asked first for its levels of kraft.version, and must have caught up with this leader's log.
        Errors in the response: INCONSISTENT_CLUSTER_ID, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, UNSUPPORTED_VERSION with
        kraft.version 0, DUPLICATE_VOTER, REQUEST_TIMED_OUT where another change, the epoch's first record or the new voter is
        waited for.
        """
        try:
            self._check_change(request, now)
            state = self._state
            assert isinstance(state, Leader)
            voter = _new_voter(request, (0, 0))
            if voter.id in self._voters:
                raise KafkaError(
                    ErrorCode.DUPLICATE_VOTER,
                    f"The voter id for {voter} is already part of the set of voters {self._voters}.",
                )
            if not self._requests.may_ask(voter.id):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"New voter {voter} is not ready to receive requests")
        except KafkaError as error:
            self._respond(request, token, error.code, error.message)
            return
        self._addresses.learn(voter.id, request.listeners)
        state.change = VoterChange(request, token, TimestampMs(now + self.settings.request_timeout_ms))
        self._send(voter.id, ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1"), now)

    def _on_api_versions(self, peer: NodeId, response: ApiVersionsResponse, now: TimestampMs) -> None:
        """The new voter says what it supports: the set with it is appended, or the request is refused."""
        state = self._state
        change = state.change if isinstance(state, Leader) else None
        if change is None or change.offset is not None or not isinstance(change.request, AddRaftVoterRequest):
            return
        if change.request.voter_id != peer:
            return
        assert isinstance(state, Leader)
        try:
            voters = self._voters.added(_new_voter(change.request, self._checked_levels(state, change, response, now)))
            assert voters is not None, "no other change was made meanwhile"
            self._append_voters(state, voters, now, change)
        except KafkaError as error:
            self._end_change(state, error.code, error.message)
            return
        if not change.request.ack_when_committed and state.change is change:
            self._end_change(state, ErrorCode.NONE)

    def _on_no_api_versions(self, peer: NodeId) -> None:
        """The new voter cannot be reached: it is not added."""
        state = self._state
        change = state.change if isinstance(state, Leader) else None
        if change is not None and change.offset is None and change.request.voter_id == peer:
            assert isinstance(state, Leader)
            self._end_change(state, ErrorCode.REQUEST_TIMED_OUT, f"{UNANSWERED} BROKER_NOT_AVAILABLE")

    def _checked_levels(
        self, state: Leader, change: VoterChange, response: ApiVersionsResponse, now: TimestampMs
    ) -> tuple[int, int]:
        """The new voter's levels of kraft.version. Errors: KafkaError for a node that cannot be a voter now."""
        new = change.request
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{UNANSWERED} {name_of(response.error_code)}",
            )
        named = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        levels = named.get(FEATURE, (0, 0))
        if not levels[0] <= self.kraft_version <= levels[1]:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation since the {FEATURE} range {levels} doesn't support the finalized version "
                f"{self.kraft_version}",
            )
        progress = state.observers.get(NodeId(new.voter_id))
        if (
            progress is None
            or progress.directory != new.voter_directory_id
            or progress.caught_up <= 0
            or progress.last_fetch <= now - CAUGHT_UP_WITHIN_MS
        ):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Aborted add voter operation since it is lagging behind")
        return levels

    def handle_remove_raft_voter(self, request: RemoveRaftVoterRequest, token: object, now: TimestampMs) -> None:
        """Make a voter an observer; the response comes out of `take_answers`, when the new set is committed.

        A leader that removes itself resigns then. Errors in the response: as `handle_add_raft_voter`; VOTER_NOT_FOUND.
        """
        try:
            self._check_change(request, now)
            state = self._state
            assert isinstance(state, Leader)
            voters = self._voters.removed(NodeId(request.voter_id), request.voter_directory_id)
            if voters is None:
                raise KafkaError(
                    ErrorCode.VOTER_NOT_FOUND,
                    f"Cannot remove voter {request.voter_id} with directory {request.voter_directory_id} from the set of "
                    f"voters {self._voters}",
                )
            change = VoterChange(request, token, TimestampMs(now + self.settings.request_timeout_ms))
            self._append_voters(state, voters, now, change)
        except KafkaError as error:
            self._respond(request, token, error.code, error.message)
        self._drive(now)

    def _check_change(self, request: AddRaftVoterRequest | RemoveRaftVoterRequest, now: TimestampMs) -> None:
        """Errors: KafkaError where no change can be made, or not now."""
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{self.cluster_id}"',
            )
        if (error := self._leader_error(self.epoch)) is not ErrorCode.NONE:
            raise KafkaError(error)
        what = "Add" if isinstance(request, AddRaftVoterRequest) else "Remove"
        if request.voter_id < 0 or request.voter_directory_id == NO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} voter request didn't include a valid voter")
        if isinstance(request, AddRaftVoterRequest) and self.settings.listener not in _names(request):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint for the default listener {self.settings.listener}",
            )
        self._check_order(what, now)

    def _check_order(self, what: str, now: TimestampMs) -> None:
        """One change at a time, upon what is committed. Errors: KafkaError REQUEST_TIMED_OUT, UNSUPPORTED_VERSION."""
        state = self._state
        assert isinstance(state, Leader)
        self._expire_change(state, now)
        if state.change is not None:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to handle previous voter change request",
            )
        if not self.is_ready:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to establish HWM and fence previous voter changes",
            )
        if self.kraft_version == 0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Cluster doesn't support {what.lower().removesuffix('e')}ing voter because the {FEATURE} feature is 0",
            )
        if self._log.history.offset >= self._high_watermark:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for voters to commit the latest voter change at "
                f"{self._log.history.offset} with HWM {self._high_watermark}",
            )

    # ---- the end of a change

    def _change_committed(self, state: Leader, now: TimestampMs) -> None:
        """The high watermark has moved: the change may be over, and this leader no voter any more."""
        change = state.change
        if change is not None and change.offset is not None and change.offset < self._high_watermark:
            self._end_change(state, ErrorCode.NONE)
        if not self._is_voter and self._log.history.offset < self._high_watermark:
            self._say("info", f"this leader is no voter any more: resigned from epoch {self.epoch}")
            self._become_resigned(state, now)

    def _expire_change(self, state: Leader, now: TimestampMs) -> None:
        if state.change is not None and now >= state.change.deadline:
            self._end_change(state, ErrorCode.REQUEST_TIMED_OUT)

    def _abandon_change(self, state: Leader) -> None:
        self._end_change(state, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _end_change(self, state: Leader, code: ErrorCode | int, message: str | None = None) -> None:
        change, state.change = state.change, None
        if change is not None:
            self._respond(change.request, change.token, code, message)

    def _respond(
        self,
        request: AddRaftVoterRequest | RemoveRaftVoterRequest,
        token: object,
        code: ErrorCode | int,
        message: str | None,
    ) -> None:
        form = AddRaftVoterResponse if isinstance(request, AddRaftVoterRequest) else RemoveRaftVoterResponse
        self._answers.append((token, form(error_code=code, error_message=message or "")))

    # ---- updates

    def handle_update_raft_voter(
        self, request: UpdateRaftVoterRequest, listener: str, now: TimestampMs
    ) -> UpdateRaftVoterResponse:
        """UpdateRaftVoter: a voter reports its endpoints and its range of kraft.version.

        With the voters of the configuration (kraft.version 0) the leader keeps it in memory, until kraft.version is raised.
        `listener` is the controllers'.
        An update that names the leader itself is refused; Kafka 4.3.1 and 4.4.0 exit (findings/voter_update_of_the_leader).
        Errors in the answer: INCONSISTENT_CLUSTER_ID, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER,
        INVALID_REQUEST, REQUEST_TIMED_OUT while another change or the epoch's first record is not committed, VOTER_NOT_FOUND.
        """
        code = self._update_error(request, listener)
        state = self._state
        if code is ErrorCode.NONE:
            assert isinstance(state, Leader)
            code = self._update_voter(state, request, now)
        current = UpdateRaftVoterResponse.CurrentLeader(leader_id=self._stored.leader, leader_epoch=self.epoch)
        if (address := self._leader_address()) is not None:
            current.host, current.port = address
        self._drive(now)
        return UpdateRaftVoterResponse(error_code=code, current_leader=current)

    def _update_error(self, request: UpdateRaftVoterRequest, listener: str) -> ErrorCode:
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        error = self._leader_error(request.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        levels = request.k_raft_version_feature
        if (
            request.voter_id < 0
            or request.voter_id == self.node
            or request.voter_directory_id == NO_UUID
            or listener not in _names(request)
            or not 0 <= levels.min_supported_version <= self.kraft_version <= levels.max_supported_version
        ):
            return ErrorCode.INVALID_REQUEST
        if not self.is_ready:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE if request.voter_id in self._voters else ErrorCode.VOTER_NOT_FOUND

    def _update_voter(self, state: Leader, request: UpdateRaftVoterRequest, now: TimestampMs) -> ErrorCode:
        """Append the voter's new entry, or keep it; the response does not wait until it is committed."""
        levels = request.k_raft_version_feature
        voter = Voter(
            NodeId(request.voter_id),
            request.voter_directory_id,
            endpoints_of(request.listeners),
            (levels.min_supported_version, levels.max_supported_version),
        )
        if self.kraft_version == 0:
            state.reported[voter.id] = voter
            return ErrorCode.NONE
        try:
            self._check_order("Update", now)
            voters = self._voters.updated(voter)
            if voters is None:
                return ErrorCode.VOTER_NOT_FOUND
            if voters.get(voter.id) != self._voters.get(voter.id):
                self._append_voters(state, voters, now)
        except KafkaError as error:
            return ErrorCode(error.code)
        return ErrorCode.NONE


def _new_voter(request: AddRaftVoterRequest, levels: tuple[int, int]) -> Voter:
    return Voter(NodeId(request.voter_id), request.voter_directory_id, endpoints_of(request.listeners), levels)


def _names(request: AddRaftVoterRequest | UpdateRaftVoterRequest) -> set[str]:
    return {each.name.upper() for each in request.listeners}
