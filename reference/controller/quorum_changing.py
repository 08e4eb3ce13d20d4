"""Changing the voters, as the leader: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853). See `quorum` for the whole.

A change is a record with the whole new set, in force as soon as it is appended. Three rules ensure that any two majorities that
may decide have a voter in common:

- one change at a time, of one voter: the previous record must be committed first (`check_order`);
- the leader must have committed a record of its own epoch first: otherwise a set of an earlier leader, which this one does not
have, may still come into force and differ by two voters (the known bug of Raft's first single-server changes);
- a leader that is removed leads on until the record is committed, and does not count itself.

Until then it may also be a candidate again (`Member.may_stand`; Raft's dissertation, 4.2.2). In Kafka it may not: if it fails
and no other node has the record, no node can lead any more (finding removed_leader).

Raising kraft.version from 0 to 1 writes the voters of the configuration into the log. The other voters' entries are those that
they reported to this leader in this epoch (UpdateRaftVoter). The ids stay the same, so that any two majorities of before and
after have a voter in common. From then on a voter is identified by its id and its directory.

Source: KIP-853; org.apache.kafka.raft.internals.AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler;
org.apache.kafka.raft.LeaderState.maybeAppendUpgradedKRaftVersion of 4.3.1.
"""

from __future__ import annotations

from reference.controller.quorum_leading import Leader, VoterChange
from reference.controller.quorum_voters import FEATURE, Voter, VoterSet, endpoints_of
from reference.protocol.errors import ErrorCode, KafkaError, name_of
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from reference.protocol.primitives import NO_UUID, NodeId, TimestampMs

CAUGHT_UP_WITHIN_MS = 3_600_000
"""A new voter must have fetched within this time (AddVoterHandler, LeaderState.isReplicaCaughtUp)."""

SOFTWARE_NAME = "tidegauge"

UNANSWERED = "Aborted add voter operation since API_VERSIONS returned an error"


def _timed_out(message: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)


# ---- adding


def add_voter(leader: Leader, request: AddRaftVoterRequest, token: object, now: TimestampMs) -> None:
    """Request the node's levels before it is added. Errors: KafkaError, as `Quorum.handle_add_raft_voter`."""
    member = leader.member
    listener = member.settings.listener
    _check_names_voter("Add", request)
    if listener not in _names(request):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint for the default listener {listener}",
        )
    check_order(leader, "Add", now)
    voter = _new_voter(request, (0, 0))
    if voter.id in member.voters:
        raise KafkaError(
            ErrorCode.DUPLICATE_VOTER,
            f"The voter id for {voter} is already part of the set of voters {member.voters}.",
        )
    if not member.requests.may_ask(voter.id):
        raise _timed_out(f"New voter {voter} is not ready to receive requests")
    member.addresses.learn(voter.id, request.listeners, member.node)
    leader.change = VoterChange(request, token, TimestampMs(now + member.settings.request_timeout_ms))
    member.send(voter.id, ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1"), now)


def _awaiting_levels(leader: Leader, peer: NodeId) -> VoterChange | None:
    """The change that waits for a node's levels of kraft.version; None if there is none."""
    change = leader.change
    return change if change is not None and change.offset is None and change.request.voter_id == peer else None


def on_api_versions(leader: Leader, peer: NodeId, response: ApiVersionsResponse, now: TimestampMs) -> None:
    """Append the set with the new voter, if its levels allow that; otherwise refuse the request."""
    change = _awaiting_levels(leader, peer)
    if change is None or not isinstance(change.request, AddRaftVoterRequest):
        return
    try:
        levels = _checked_levels(leader, change, response, now)
        voters = leader.member.voters.added(_new_voter(change.request, levels))
        assert voters is not None, "no other change was made meanwhile"
        leader.append_voters(voters, now, change)
    except KafkaError as error:
        leader.end_change(error.code, error.message)
        return
    if not change.request.ack_when_committed and leader.change is change:
        leader.end_change(ErrorCode.NONE)


def on_no_api_versions(leader: Leader, peer: NodeId) -> None:
    """Refuse to add a new voter that cannot be reached."""
    if _awaiting_levels(leader, peer) is not None:
        leader.end_change(ErrorCode.REQUEST_TIMED_OUT, f"{UNANSWERED} BROKER_NOT_AVAILABLE")


def _checked_levels(
    leader: Leader, change: VoterChange, response: ApiVersionsResponse, now: TimestampMs
) -> tuple[int, int]:
    """The new voter's levels of kraft.version. Errors: KafkaError for a node that cannot be a voter now."""
    new, finalized = change.request, leader.member.kraft_version
    if response.error_code != ErrorCode.NONE:
        raise _timed_out(f"{UNANSWERED} {name_of(response.error_code)}")
    named = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    levels = named.get(FEATURE, (0, 0))
    if not levels[0] <= finalized <= levels[1]:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Aborted add voter operation since the {FEATURE} range {levels} doesn't support the finalized version "
            f"{finalized}",
        )
    progress = leader.members.observers.get((NodeId(new.voter_id), new.voter_directory_id))
    if progress is None or progress.caught_up <= 0 or progress.last_fetch <= now - CAUGHT_UP_WITHIN_MS:
        raise _timed_out("Aborted add voter operation since it is lagging behind")
    return levels


# ---- removing


def remove_voter(leader: Leader, request: RemoveRaftVoterRequest, token: object, now: TimestampMs) -> None:
    """Append the set without a voter. Errors: KafkaError, as `Quorum.handle_remove_raft_voter`."""
    _check_names_voter("Remove", request)
    check_order(leader, "Remove", now)
    member = leader.member
    voters = member.voters.removed(NodeId(request.voter_id), request.voter_directory_id)
    if voters is None:
        raise KafkaError(
            ErrorCode.VOTER_NOT_FOUND,
            f"Cannot remove voter {request.voter_id} with directory {request.voter_directory_id} from the set of "
            f"voters {member.voters}",
        )
    change = VoterChange(request, token, TimestampMs(now + member.settings.request_timeout_ms))
    leader.append_voters(voters, now, change)


# ---- what can be changed, and when


def _check_names_voter(what: str, request: AddRaftVoterRequest | RemoveRaftVoterRequest) -> None:
    if request.voter_id < 0 or request.voter_directory_id == NO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} voter request didn't include a valid voter")


def check_order(leader: Leader, what: str, now: TimestampMs, *, takes_static: bool = False) -> None:
    """Check that no change is pending, and that this epoch is established. Errors: KafkaError REQUEST_TIMED_OUT,
    UNSUPPORTED_VERSION.

    `takes_static` allows kraft.version 0.
    """
    member = leader.member
    leader.expire_change(now)
    if leader.change is not None:
        raise _timed_out("Request timed out waiting for leader to handle previous voter change request")
    if not leader.is_ready:
        raise _timed_out("Request timed out waiting for leader to establish HWM and fence previous voter changes")
    if member.kraft_version == 0 and not takes_static:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Cluster doesn't support {what.lower().removesuffix('e')}ing voter because the {FEATURE} feature is 0",
        )
    appended = member.log.history.offset
    if appended >= member.high_watermark:
        raise _timed_out(
            "Request timed out waiting for voters to commit the latest voter change at "
            f"{appended} with HWM {member.high_watermark}"
        )


# ---- updates


def update_voter(leader: Leader, request: UpdateRaftVoterRequest, listener: str, now: TimestampMs) -> ErrorCode:
    """Append the voter's new entry, or keep it with kraft.version 0; the response does not wait for the commit."""
    member, level, levels = leader.member, leader.member.kraft_version, request.k_raft_version_feature
    if (
        request.voter_id < 0
        or request.voter_id == member.node
        or request.voter_directory_id == NO_UUID
        or listener not in _names(request)
        or not 0 <= levels.min_supported_version <= levels.max_supported_version
    ):
        return ErrorCode.INVALID_REQUEST
    voter = Voter(
        NodeId(request.voter_id),
        request.voter_directory_id,
        endpoints_of(request.listeners),
        (levels.min_supported_version, levels.max_supported_version),
    )
    try:
        check_order(leader, "Update", now, takes_static=True)
        if not levels.min_supported_version <= level <= levels.max_supported_version:
            return ErrorCode.INVALID_REQUEST
        voters = member.voters.updated(voter)
        if voters is None:
            return ErrorCode.VOTER_NOT_FOUND
        if level == 0:
            leader.reported[voter.id] = voter
        elif voter != member.voters.get(voter.id):
            leader.append_voters(voters, now)
    except KafkaError as error:
        return ErrorCode(error.code)
    leader.note_following(voter.id, voter.directory, now)
    return ErrorCode.NONE


# ---- raising kraft.version


def reported_voters(leader: Leader, level: int) -> VoterSet:
    """The voters as each reported itself. Errors: KafkaError INVALID_UPDATE_VERSION if one has not reported, or does not
    support the level."""
    member = leader.member
    found = [leader.own_voter() if id == member.node else leader.reported.get(id) for id in member.voters.ids]
    voters = [each for each in found if each is not None and each.levels[0] <= level <= each.levels[1]]
    if len(voters) < len(found):
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid upgrade of {FEATURE} to KRAFT_VERSION_{level} because not all of the voters support it",
        )
    return VoterSet(voters)


def _new_voter(request: AddRaftVoterRequest, levels: tuple[int, int]) -> Voter:
    return Voter(NodeId(request.voter_id), request.voter_directory_id, endpoints_of(request.listeners), levels)


def _names(request: AddRaftVoterRequest | UpdateRaftVoterRequest) -> set[str]:
    return {each.name.upper() for each in request.listeners}
