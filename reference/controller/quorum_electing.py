"""Elections: standing for one, asking for votes and giving them. See `quorum` for the whole.

Source: KIP-595, KIP-996; org.apache.kafka.raft.ProspectiveState, CandidateState, UnattachedState.
"""

from __future__ import annotations

from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.quorum_leading import Leading
from reference.controller.quorum_member import MAX_EPOCH, PARTITION_NAME
from reference.controller.quorum_roles import NEVER, Follower, Leader, Nominee, Role, Unattached
from reference.controller.quorum_rules import grants_vote, is_up_to_date, successor_delay_ms
from reference.controller.quorum_state import QuorumState
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from reference.protocol.messages.vote import VoteRequest, VoteResponse
from reference.protocol.primitives import NO_NODE, NO_UUID, NodeId, TimestampMs
from reference.storage.errors import StorageError


class Electing(Leading):
    """Elections: votes, candidacy, and changes of the leader."""

    def _become_prospective(self, now: TimestampMs) -> None:
        """Ask the others whether they would vote for this member; no node is disturbed by it."""
        if self.epoch >= MAX_EPOCH - 1:
            self._say("error", f"{PARTITION_NAME}: epoch {self.epoch} is the last that there can be: no election")
            self._change(Unattached(NEVER), self._stored)
            return
        self._change(Nominee(Role.PROSPECTIVE, self._election_deadline(now), {self.node}), self._stored)
        self._trace_step("BecomeProspective")
        self._count_votes(now)

    def _become_candidate(self, now: TimestampMs) -> None:
        """Begin a new epoch with a vote for itself."""
        self._change(
            Nominee(Role.CANDIDATE, self._election_deadline(now), {self.node}),
            QuorumState(NO_NODE, self.epoch + 1, self.node, self._vote_directory(self._directory)),
        )
        self._trace_step("BecomeCandidate")
        self._count_votes(now)

    def _count_votes(self, now: TimestampMs) -> None:
        state = self._state
        if not isinstance(state, Nominee):
            return
        needs_votes = state.role is Role.CANDIDATE or self.settings.pre_vote
        if needs_votes and len(state.granted) < self._voters.majority:
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
            self._become_unattached(self.epoch, NO_NODE, now)

    def _ask_for_votes(self, state: Nominee, now: TimestampMs) -> None:
        if self._has_lost(state):
            return
        for voter in self._others:
            if voter not in state.granted and voter not in state.refused and self._requests.may_ask(voter):
                request = messages.vote_request(
                    self.cluster_id,
                    voter,
                    self.node,
                    self._directory,
                    self.epoch,
                    (self._log.last_epoch, self._log.end),
                    pre_vote=state.role is Role.PROSPECTIVE,
                )
                self._send(voter, messages.meant_for(request, self._voters.directory_of(voter)), now)

    def _vote_directory(self, directory: UUID) -> UUID:
        """The directory to store with a vote: the voters of the configuration have none."""
        return NO_UUID if self.is_static else directory

    # ---- giving votes

    def handle_vote(self, request: VoteRequest, now: TimestampMs) -> VoteResponse:
        """Give this member's vote, or say whether it would (pre-vote).

        Answers INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, INCONSISTENT_VOTER_SET for strangers, FENCED_LEADER_EPOCH,
        INVALID_VOTER_KEY when another node was meant, KAFKA_STORAGE_ERROR.
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
        response = messages.vote_response(error, self.epoch, self._stored.leader, granted=granted)
        self._drive(now)
        return self._with_leader(response)

    def _vote_error(self, asked: VoteRequest.PartitionData) -> ErrorCode:
        last_allowed = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
        if asked.last_offset < 0 or asked.last_offset_epoch < 0 or asked.last_offset_epoch > last_allowed:
            return ErrorCode.INVALID_REQUEST
        return self._voter_error(asked.replica_id, asked.replica_epoch)

    def _decide_vote(
        self, request: VoteRequest, asked: VoteRequest.PartitionData, now: TimestampMs
    ) -> tuple[ErrorCode, bool]:
        candidate, epoch = asked.replica_id, asked.replica_epoch
        if epoch > self.epoch:
            self._become_unattached(epoch, NO_NODE, now)
            self._trace_step("LearnEpoch", {"from": candidate, "to": self.node})
        if not self._is_meant(request.voter_id, asked.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY, False
        up_to_date = is_up_to_date(asked.last_offset_epoch, asked.last_offset, self._log.last_epoch, self._log.end)
        if asked.pre_vote:
            return ErrorCode.NONE, up_to_date and self._grants_pre_votes()
        directory = self._vote_directory(asked.replica_directory_id)
        # One vote an epoch: the same node with another directory is another voter, without the first one's log (KIP-853).
        is_other = self._stored.voted == candidate and self._stored.voted_directory != directory
        granted = (
            self.role in (Role.UNATTACHED, Role.PROSPECTIVE)
            and not is_other
            and grants_vote(candidate, self._stored.voted, self._stored.leader, up_to_date)
        )
        if granted and self._stored.voted == NO_NODE:
            self._grant_vote(candidate, directory, now)
        return ErrorCode.NONE, granted

    def _grants_pre_votes(self) -> bool:
        """False for a leader, and for a follower that has fetched from the leader in this epoch (KIP-996)."""
        state = self._state
        return not isinstance(state, Leader) and not (isinstance(state, Follower) and state.has_fetched)

    def _grant_vote(self, candidate: NodeId, directory: UUID, now: TimestampMs) -> None:
        """Vote, durably; and wait longer, for the candidate is as good as this member.

        An observer votes, too: it may be a voter in a record that it has not fetched yet (KIP-853).
        """
        deadline = self._election_deadline(now) if self._is_voter else NEVER
        prospective = self.role is Role.PROSPECTIVE
        state = Nominee(Role.PROSPECTIVE, deadline, {self.node}) if prospective else Unattached(deadline)
        self._change(state, QuorumState(self._stored.leader, self.epoch, candidate, directory))
        self._trace_step("GrantVote", {"from": self.node, "to": candidate})

    # ---- getting votes

    def _on_vote(self, peer: NodeId, request: VoteRequest, response: VoteResponse, now: TimestampMs) -> None:
        answer = messages.of_metadata(response.topics) if response.error_code == ErrorCode.NONE else None
        if answer is None:
            self._requests.pause(peer, now)
            return
        if not self._heeds(peer, answer.error_code, answer.leader_epoch, answer.leader_id, now):
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
            self._trace_step("GrantPreVote", {"from": peer, "to": self.node})
        self._count_votes(now)

    # ---- leaders that come and go

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, now: TimestampMs) -> BeginQuorumEpochResponse:
        """A leader reports its epoch. Errors in the answer as for `handle_vote`."""
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        reported = messages.of_metadata(request.topics)
        if reported is None:
            return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        self._addresses.learn(reported.leader_id, request.leader_endpoints)
        error = self._reported_error(reported.leader_id, reported.leader_epoch, now)
        if error is ErrorCode.NONE and not self._is_meant(request.voter_id, reported.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE and self.role is Role.PROSPECTIVE and reported.leader_id == self._stored.leader:
            self._attempt(lambda: self._become_follower(self.epoch, reported.leader_id, now), now)
        response = messages.begin_response(error, self.epoch, self._stored.leader)
        self._drive(now)
        return self._with_leader(response)

    def handle_end_quorum_epoch(self, request: EndQuorumEpochRequest, now: TimestampMs) -> EndQuorumEpochResponse:
        """A leader has resigned: its followers become candidates, the one with the best log first. Errors: as `handle_vote`."""
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        reported = messages.of_metadata(request.topics)
        if reported is None:
            return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        self._addresses.learn(reported.leader_id, request.leader_endpoints)
        error = self._reported_error(reported.leader_id, reported.leader_epoch, now)
        state = self._state
        if error is ErrorCode.NONE and isinstance(state, Follower) and self._stored.leader == reported.leader_id:
            successors = messages.successors_in(reported)
            position = successors.index(self.node) if self.node in successors else -1
            state.deadline = now + successor_delay_ms(position, len(successors), self.settings.election_backoff_max_ms)
            state.has_fetched = False
        response = messages.end_response(error, self.epoch, self._stored.leader)
        self._drive(now)
        return self._with_leader(response)
