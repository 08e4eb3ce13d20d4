"""Elections in the controller quorum: pre-votes, votes, and how a member learns the leader. See `quorum` for the whole.

Source: KIP-595, KIP-996; org.apache.kafka.raft.ProspectiveState, CandidateState, UnattachedState.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.quorum_following import Follower, become_follower
from reference.controller.quorum_leading import Leader, become_leader
from reference.controller.quorum_member import MAX_EPOCH, Member
from reference.controller.quorum_roles import NEVER, Resigned, Role, Unattached
from reference.controller.quorum_rules import grants_vote, is_up_to_date
from reference.controller.quorum_state import QuorumState
from reference.controller.quorum_voters import NamedEndpoint
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from reference.protocol.messages.vote import VoteRequest
from reference.protocol.primitives import NO_NODE, NO_UUID, LeaderEpoch, NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.storage.errors import StorageError

LeaderReport = BeginQuorumEpochRequest.PartitionData | EndQuorumEpochRequest.PartitionData


@dataclass(slots=True, eq=False)
class Nominee:
    """A member that requests pre-votes (`Prospective`) or votes (`Candidate`)."""

    role: ClassVar[Role]
    member: Member
    deadline: TimestampMs
    granted: set[NodeId] = field(init=False)
    refused: set[NodeId] = field(default_factory=set[NodeId])

    def __post_init__(self) -> None:
        # A member that was removed counts only the votes of the voters, not its own.
        self.granted = {self.member.node} if self.member.is_voter else set()

    def end(self) -> None:
        return

    @property
    def has_lost(self) -> bool:
        return len(self.refused) > len(self.member.voters) - self.member.voters.majority

    def ask_for_votes(self, now: TimestampMs) -> None:
        if self.has_lost:
            return
        member = self.member
        for voter in member.others:
            if voter not in self.granted and voter not in self.refused and member.requests.may_ask(voter):
                last = member.log.last_epoch, member.log.end
                is_prospective = self.role is Role.PROSPECTIVE
                request = messages.vote_request(member.asker, voter, last, pre_vote=is_prospective)
                member.send(voter, messages.meant_for(request, member.voters.directory_of(voter)), now)

    def on_vote(self, peer: NodeId, granted: bool, now: TimestampMs) -> None:
        """Count a voter's response to this role's request."""
        is_prospective = self.role is Role.PROSPECTIVE
        if not granted:
            self.refused.add(peer)
            if is_prospective and self.has_lost:
                self.lose(now)
            return
        self.granted.add(peer)
        if is_prospective:
            self.member.trace_step("GrantPreVote", {"from": peer, "to": self.member.node})
        self.count_votes(now)

    def count_votes(self, now: TimestampMs) -> None:
        needs_votes = self.role is Role.CANDIDATE or self.member.settings.pre_vote
        if needs_votes and len(self.granted) < self.member.voters.majority:
            return
        if self.role is Role.PROSPECTIVE:
            become_candidate(self.member, now)
        else:
            become_leader(self.member, self.granted, now)

    def lose(self, now: TimestampMs) -> None:
        """Give up: a candidate becomes prospective; a prospective follows the leader that it knows, or becomes unattached."""
        member, leader = self.member, self.member.stored.leader
        if self.role is Role.CANDIDATE:
            become_prospective(member, now)
        elif leader in member.others or (leader != NO_NODE and member.address_of(leader) is not None):
            become_follower(member, member.epoch, leader, now)
        else:
            become_unattached(member, member.epoch, leader, now)


class Prospective(Nominee):
    role: ClassVar[Role] = Role.PROSPECTIVE


class Candidate(Nominee):
    role: ClassVar[Role] = Role.CANDIDATE


def become_prospective(member: Member, now: TimestampMs) -> None:
    """Begin to request pre-votes, which change nothing at other members; without pre-votes become a candidate at once.

    In the last possible epoch the member becomes unattached instead.
    """
    if member.epoch >= MAX_EPOCH - 1:
        member.say_error(f"epoch {member.epoch} is the last that there can be: no election")
        member.change(Unattached(NEVER), member.stored)
        return
    prospective = Prospective(member, member.election_deadline(now))
    member.change(prospective, member.stored)
    member.trace_step("BecomeProspective")
    prospective.count_votes(now)


def become_candidate(member: Member, now: TimestampMs) -> None:
    """Begin a new epoch with a vote for this member itself."""
    candidate = Candidate(member, member.election_deadline(now))
    # Epoch and vote are stored together: after a crash between the two the member could vote for another in this epoch.
    vote = QuorumState(NO_NODE, member.epoch + 1, member.node, _vote_directory(member, member.directory))
    member.change(candidate, vote)
    member.trace_step("BecomeCandidate")
    candidate.count_votes(now)


def become_unattached(member: Member, epoch: LeaderEpoch, leader: NodeId, now: TimestampMs) -> None:
    """Wait for a leader. A member with a running election timeout keeps it."""
    state = member.state
    lost = isinstance(state, Prospective) and state.has_lost
    if not member.may_stand:
        deadline = NEVER
    elif isinstance(state, Unattached | Nominee | Resigned) and not lost:
        deadline = state.deadline
    else:
        deadline = member.election_deadline(now)
    member.change(Unattached(deadline), member.stored_with(epoch, leader))


def _vote_directory(member: Member, directory: UUID) -> UUID:
    """The directory id to store with a vote; voters of controller.quorum.voters have none."""
    return NO_UUID if member.is_static else directory


# ---- giving votes


def vote_error(member: Member, asked: VoteRequest.PartitionData) -> ErrorCode:
    # A candidate requests votes in its new epoch, which has no records in any log. A pre-vote is requested in the current
    # epoch.
    last_allowed = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
    if asked.last_offset < 0 or asked.last_offset_epoch < 0 or asked.last_offset_epoch > last_allowed:
        return ErrorCode.INVALID_REQUEST
    return member.voter_error(asked.replica_id, asked.replica_epoch)


def decide_vote(
    member: Member, request: VoteRequest, asked: VoteRequest.PartitionData, now: TimestampMs
) -> tuple[ErrorCode, bool]:
    """The error code, and whether the vote or pre-vote is granted. A newer epoch is adopted first. Errors: StorageError."""
    candidate, epoch = asked.replica_id, asked.replica_epoch
    if epoch > member.epoch:
        become_unattached(member, epoch, NO_NODE, now)
        member.trace_step("LearnEpoch", {"from": candidate, "to": member.node})
    if not member.is_meant(request.voter_id, asked.voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY, False
    log, stored = member.log, member.stored
    up_to_date = is_up_to_date(asked.last_offset_epoch, asked.last_offset, log.last_epoch, log.end)
    # A pre-vote is not stored: a member grants it to any number of nodes in one epoch.
    if asked.pre_vote:
        return ErrorCode.NONE, up_to_date and _grants_pre_votes(member)
    directory = _vote_directory(member, asked.replica_directory_id)
    # One vote per epoch: the same node with another directory id is another voter, without the first one's log (KIP-853).
    is_other = stored.voted == candidate and stored.voted_directory != directory
    granted = (
        member.role in (Role.UNATTACHED, Role.PROSPECTIVE)
        and not is_other
        and grants_vote(candidate, stored.voted, stored.leader, up_to_date)
    )
    if granted and stored.voted == NO_NODE:
        _grant_vote(member, candidate, directory, now)
    return ErrorCode.NONE, granted


def _grants_pre_votes(member: Member) -> bool:
    """False for a leader, and for a follower that has fetched from the leader in this epoch (KIP-996)."""
    state = member.state
    return not isinstance(state, Leader) and not (isinstance(state, Follower) and state.has_fetched)


def _grant_vote(member: Member, candidate: NodeId, directory: UUID, now: TimestampMs) -> None:
    """Store the vote durably, and restart the election timeout so that the candidate has time to win.

    An observer votes too: it may be a voter in a record that it has not fetched yet (KIP-853).
    """
    deadline = member.election_deadline(now) if member.may_stand else NEVER
    state = Prospective(member, deadline) if member.role is Role.PROSPECTIVE else Unattached(deadline)
    member.change(state, QuorumState(member.stored.leader, member.epoch, candidate, directory))
    member.trace_step("GrantVote", {"from": member.node, "to": candidate})


# ---- learning the leader from other members


def adopt(member: Member, epoch: LeaderEpoch, leader: NodeId, now: TimestampMs, source: NodeId) -> bool:
    """Follow the leader of this epoch or a newer one, or become unattached in a newer epoch without a leader.

    True when the role changed.
    """
    if not member.is_static and leader not in (NO_NODE, member.node) and member.address_of(leader) is None:
        leader = NO_NODE
    known = member.stored.leader
    if leader != NO_NODE and ((member.is_static and leader not in member.voters) or leader == member.node):
        if not (leader == member.node and epoch == member.epoch and known == member.node):
            member.say_error(f"node {source} names node {leader} the leader of epoch {epoch}")
        return False
    if epoch > member.epoch:
        if epoch >= MAX_EPOCH:
            return False
        if leader == NO_NODE:
            become_unattached(member, epoch, NO_NODE, now)
        else:
            become_follower(member, epoch, leader, now)
        member.trace_step("LearnEpoch", {"from": source, "to": member.node})
        return True
    if leader == NO_NODE or (known != NO_NODE and (known != leader or member.role is not Role.UNATTACHED)):
        # An epoch has one leader. A second one is the sender's error, and must not change this member's.
        if NO_NODE not in (leader, known) and known != leader:
            member.say_error(f"nodes {known} and {leader} are said to lead epoch {epoch}")
        return False
    become_follower(member, epoch, leader, now)
    return True


def learn_from_response(
    member: Member,
    peer: NodeId,
    error: int,
    epoch: LeaderEpoch,
    leader: NodeId,
    now: TimestampMs,
    response: Message,
) -> bool:
    """Learn epoch and leader from a response; True when the rest of the response is to be handled too."""
    if epoch >= member.epoch and error != ErrorCode.UNKNOWN_LEADER_EPOCH:
        newer = epoch > member.epoch
        member.addresses.learn_from(response, NO_NODE if newer else member.stored.leader)
        if adopt(member, epoch, leader, now, peer) and (newer or error != ErrorCode.NONE):
            return False
        if error in (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND) and epoch == member.epoch:
            return True
    member.requests.pause(peer, now)
    return False


def learn_from_leader(
    member: Member, reported: LeaderReport, endpoints: Sequence[NamedEndpoint], now: TimestampMs
) -> ErrorCode:
    """Learn from a leader's request that it leads its epoch; return the error code of the request."""
    leader, epoch = reported.leader_id, reported.leader_epoch
    error = member.voter_error(leader, epoch)
    if error is not ErrorCode.NONE:
        return error
    # Two leaders of one epoch: one voter has lost its stored vote. The leader known first remains.
    if epoch == member.epoch and member.stored.leader not in (NO_NODE, leader):
        member.say_error(f"nodes {member.stored.leader} and {leader} are said to lead epoch {epoch}")
        return ErrorCode.INVALID_REQUEST
    member.addresses.learn(leader, endpoints, member.stored.leader if epoch == member.epoch else NO_NODE)
    try:
        adopt(member, epoch, leader, now, leader)
    except StorageError as failure:
        member.say_error(failure.message)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE
