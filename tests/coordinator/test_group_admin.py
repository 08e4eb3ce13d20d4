"""What administrators learn about a shard's groups."""

from __future__ import annotations

import pytest

from reference.coordinator.group_admin import describe_group, list_groups, removal
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.list_groups import ListGroupsRequest
from tests.coordinator.group_room import Room


def three_groups() -> Room:
    """An empty group, a group of consumers that is stable, and one of workers that is being assigned."""
    room = Room()
    room.commit(1, group="offsets only")
    room.two_members()
    room.join("w1", group="workers", protocol_type="connect", metadata=b"url")
    return room


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], {"offsets only", "g", "workers"}),
        (["Stable"], [], {"g"}),
        ([" stable ", "EMPTY"], [], {"g", "offsets only"}),
        (["CompletingRebalance"], ["classic"], {"workers"}),
        ([], ["consumer"], set()),
        ([], ["no such type"], set()),
        (["Dead"], [], set()),
    ],
)
def test_lists_are_filtered_by_states_and_types(states: list[str], types: list[str], found: set[str]) -> None:
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    assert {each.group_id for each in list_groups(three_groups().shard.groups, request)} == found


def test_a_list_has_the_type_and_state_of_each_group() -> None:
    listed = {each.group_id: each for each in list_groups(three_groups().shard.groups, ListGroupsRequest())}
    reported = {id: (each.protocol_type, each.group_state, each.group_type) for id, each in listed.items()}
    assert reported == {
        "offsets only": ("", "Empty", "classic"),
        "g": ("consumer", "Stable", "classic"),
        "workers": ("connect", "CompletingRebalance", "classic"),
    }


def test_a_stable_group_is_described_with_everything() -> None:
    room = three_groups()
    reported = describe_group(room.shard.groups, "g", 5)
    assert (reported.group_state, reported.protocol_type, reported.protocol_data) == ("Stable", "consumer", "range")
    assert [
        (each.client_id, each.client_host, each.member_metadata, each.member_assignment) for each in reported.members
    ] == [
        ("client", "/127.0.0.1", b"m", b"A"),
        ("client", "/127.0.0.1", b"m", b"B"),
    ]


def test_in_other_states_members_metadata_are_not_reported() -> None:
    reported = describe_group(three_groups().shard.groups, "workers", 5)
    assert (reported.group_state, reported.protocol_type, reported.protocol_data) == (
        "CompletingRebalance",
        "connect",
        "",
    )
    assert [each.member_metadata for each in reported.members] == [b""]


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(version: int, code: ErrorCode) -> None:
    reported = describe_group({}, "unknown", version)
    assert (reported.group_state, reported.error_code) == ("Dead", code)
    assert reported.error_message == ("Group unknown not found." if version == 6 else None)


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    room = three_groups()
    room.write(removal(room.shard.groups, room.shard.offsets, "offsets only"))
    room.crash()
    assert "offsets only" not in room.shard.groups
    assert room.committed("offsets only") is None


@pytest.mark.parametrize(("id", "code"), [("g", ErrorCode.NON_EMPTY_GROUP), ("unknown", ErrorCode.GROUP_ID_NOT_FOUND)])
def test_what_is_not_deleted(id: str, code: ErrorCode) -> None:
    room = three_groups()
    with pytest.raises(KafkaError) as refused:
        removal(room.shard.groups, room.shard.offsets, id)
    assert refused.value.code is code


def test_members_of_a_deleted_group_are_strangers_to_the_next_one() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.leave(leader, follower)
    room.write(removal(room.shard.groups, room.shard.offsets, "g"))
    assert room.shard.groups == {}
    assert room.heartbeat(leader, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    room.join("a9")
    assert room.joined("a9").generation_id == 1
