"""What a follower asks of the leader for itself: its entry among the voters is to be made, or to be what it is now (KIP-853).

A voter whose endpoints or levels are others than the log says sends UpdateRaftVoter; with kraft.version 0, where the log says
nothing, each voter does so once to each leader, which needs the entries to raise kraft.version. A controller that is no voter,
and may join by itself (controller.quorum.auto.join.enable), sends RemoveRaftVoter for the voter of its id with another
directory, which it was before it lost its disk, and AddRaftVoter when there is none.
Source: org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

from reference.controller.quorum_following import Following
from reference.controller.quorum_roles import Follower
from reference.controller.quorum_voters import LEVELS, Voter
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message


class Joining(Following):
    """The part of a follower whose entry among the voters is to change."""

    def _fetch_from_leader(self, state: Follower, now: TimestampMs) -> None:
        """As `Following`; a request for this node's own entry goes first, once in each fetch timeout."""
        leader = self._stored.leader
        request = self._request_for_entry(state) if now >= state.next_report and state.receipt is None else None
        if request is not None and not self._requests.any_open and self._requests.may_ask(leader):
            state.next_report = TimestampMs(now + self.settings.fetch_timeout_ms)
            self._send(leader, request, now)
        super()._fetch_from_leader(state, now)

    def _reports_to_static_leader(self, state: Follower) -> bool:
        """Releases before 4.1 do not take the request with kraft.version 0, and know no pre-votes where they are before 4.0."""
        return self.is_static and self.settings.pre_vote and not state.has_reported

    def _on_update_raft_voter(self, response: UpdateRaftVoterResponse) -> None:
        if isinstance(self._state, Follower) and response.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            self._state.has_reported = True

    def _request_for_entry(self, state: Follower) -> Message | None:
        """What to ask the leader for; None where this node's entry is right, or is not its own to ask for."""
        if not self.settings.endpoints:
            return None
        own = Voter(self.node, self._directory, self.settings.endpoints, LEVELS)
        found = self._voters.get(self.node)
        if self.kraft_version == 0:
            return self._update_request(own) if self._is_voter and self._reports_to_static_leader(state) else None
        if self._is_voter:
            return None if found == own else self._update_request(own)
        if not self.settings.auto_join:
            return None
        if found is not None:
            return RemoveRaftVoterRequest(
                cluster_id=self.cluster_id, voter_id=found.id, voter_directory_id=found.directory
            )
        return AddRaftVoterRequest(
            cluster_id=self.cluster_id,
            timeout_ms=self.settings.request_timeout_ms,
            voter_id=own.id,
            voter_directory_id=own.directory,
            listeners=[
                AddRaftVoterRequest.Listener(name=each.listener, host=each.host, port=each.port)
                for each in own.endpoints
            ],
            ack_when_committed=False,
        )

    def _update_request(self, own: Voter) -> UpdateRaftVoterRequest:
        lowest, highest = own.levels
        return UpdateRaftVoterRequest(
            cluster_id=self.cluster_id,
            current_leader_epoch=self.epoch,
            voter_id=own.id,
            voter_directory_id=own.directory,
            listeners=[
                UpdateRaftVoterRequest.Listener(name=each.listener, host=each.host, port=each.port)
                for each in own.endpoints
            ],
            k_raft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
                min_supported_version=lowest, max_supported_version=highest
            ),
        )
