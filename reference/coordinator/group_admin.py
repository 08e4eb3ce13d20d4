"""Administration of a shard's groups: list, describe and delete.

Source: requirements GAD-01 to GAD-07; KIP-518, KIP-848, KIP-1043; org.apache.kafka.coordinator.group.GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_state import State
from reference.coordinator.group import Group, KeyValue
from reference.coordinator.offsets import Offsets
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.describe_groups import DescribeGroupsResponse
from reference.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from reference.protocol.primitives import GroupId

FIRST_DESCRIPTION_WITH_GROUP_ID_NOT_FOUND = 6


def list_groups(groups: Mapping[GroupId, Group], request: ListGroupsRequest) -> list[ListGroupsResponse.ListedGroup]:
    """The groups that match the state and type filters, in upper or lower case; an empty filter matches all (GAD-03)."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {type.lower() for type in request.types_filter}
    return [
        ListGroupsResponse.ListedGroup(
            group_id=group.id,
            protocol_type=group.protocol_type or "",
            group_state=group.state_name,
            group_type=group.type.lower(),
        )
        for group in groups.values()
        if (not states or group.state_name.lower() in states) and (not types or group.type.lower() in types)
    ]


def describe_group(groups: Mapping[GroupId, Group], id: GroupId, version: int) -> DescribeGroupsResponse.DescribedGroup:
    """A classic group; members' metadata only in a stable group (GAD-01, GAD-02)."""
    group = groups.get(id)
    described = DescribeGroupsResponse.DescribedGroup(group_id=id, group_state=State.DEAD.value)
    if not isinstance(group, ClassicGroup):
        if version >= FIRST_DESCRIPTION_WITH_GROUP_ID_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            what = "not found" if group is None else "is not a classic group"
            described.error_message = f"Group {id} {what}."
        return described
    protocol = group.protocol if group.state is State.STABLE else None
    described.group_state = group.state_name
    described.protocol_type = group.protocol_type or ""
    described.protocol_data = protocol or ""
    described.members = [member.described(protocol) for member in group.members.values()]
    return described


def removal(groups: Mapping[GroupId, Group], offsets: Offsets, id: GroupId) -> list[KeyValue]:
    """The records that remove a group and all its offsets (GAD-04).

    Errors: KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    group = groups.get(id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.check_delete()
    return [*offsets.tombstones(id), *group.tombstones()]
