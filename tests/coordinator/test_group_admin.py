"""Responses to administrators about a shard's groups."""

from __future__ import annotations

import pytest

from reference.coordinator.group_admin import describe_group, list_groups
from reference.protocol.errors import ErrorCode
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


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(version: int, code: ErrorCode) -> None:
    reported = describe_group({}, "unknown", version)
    assert (reported.group_state, reported.error_code) == ("Dead", code)
    assert reported.error_message == ("Group unknown not found." if version == 6 else None)
