"""Large groups, many groups, and members that send false or oversized data: no other member is harmed, and no acknowledged
offset is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from linearizability.client.group_member import ClassicMember
from linearizability.client.requests import commit_request, fetch_offsets_request
from linearizability.targets import Target, open_target
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.list_groups import ListGroupsRequest
from tests.abuse.broker import Broker

MEMBERS = 200
GROUPS = 2_000
BYTES_A_GROUP = 15_000
"""What a group with one offset may cost the broker's process; 4,000 are usual, the rest is room for the allocator."""
PATIENCE_S = 60.0
MIB = 1 << 20


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker that delays a group's first generation a little, so that more members are in it."""
    config = {"group.initial.rebalance.delay.ms": "500", "offsets.topic.num.partitions": "5"}
    with open_target("reference:1", folder=tmp_path_factory.mktemp("groups"), config=config) as target:
        Broker(target).create("events")
        await_coordinator(Broker(target))
        yield target


def await_coordinator(broker: Broker) -> None:
    """Create the internal topic, which the first FindCoordinator request does, and wait until its coordinator is loaded."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with broker.wire() as wire:
            found = wire.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators[0].error_code
            if found == ErrorCode.NONE and not wire.call(ListGroupsRequest()).error_code:
                return
        assert time.monotonic() < until, ErrorCode(found).name
        time.sleep(0.05)


def patient_wire(broker: Broker) -> Wire:
    return Wire.connect(broker.member.node.host, broker.member.node.port, timeout_s=PATIENCE_S)


def join(wire: Wire, group: str, member: str = "", *, metadata: bytes = b"m", version: int = 3) -> Any:
    said = ClassicMember(group, {"range": metadata}, member, session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
    return wire.call(said.join(), version)


def sync(wire: Wire, group: str, joined: Any, assignments: dict[str, bytes]) -> Any:
    said = ClassicMember(group, id=joined.member_id, generation=joined.generation_id)
    return wire.call(said.sync(assignments), 3)


def commit(wire: Wire, group: str, offset: int, *, member: str = "", generation: int = -1) -> int:
    request = commit_request(group, {("events", 0): offset}, member_id=member, generation=generation)
    return wire.call(request, 9).topics[0].partitions[0].error_code


def committed(wire: Wire, groups: list[str]) -> list[int]:
    """Each group's offset, asked for in one request."""
    answer = wire.call(fetch_offsets_request({group: [("events", 0)] for group in groups}), 9)
    assert [each.group_id for each in answer.groups] == groups
    return [each.topics[0].partitions[0].committed_offset for each in answer.groups]


def member_alone(wire: Wire, group: str) -> Any:
    """A stable group of one."""
    joined = join(wire, group)
    assert joined.error_code == ErrorCode.NONE
    assert sync(wire, group, joined, {joined.member_id: b"A"}).assignment == b"A"
    return joined


def heartbeat(wire: Wire, group: str, joined: Any) -> int:
    said = ClassicMember(group, id=joined.member_id, generation=joined.generation_id)
    return wire.call(said.heartbeat()).error_code


def test_two_hundred_members_come_into_one_generation(broker: Broker) -> None:
    are_all_in = threading.Event()

    def live(number: int) -> tuple[int, bytes, bytes]:
        """Join, synchronise and send heartbeats as a client does, and join again at each rebalance. Returns the last generation,
        the assignment, and the expected assignment."""
        wanted, member = b"for " + number.to_bytes(2, "big"), ""
        with patient_wire(broker) as wire:
            for _ in range(MEMBERS):
                joined = join(wire, "many", member, metadata=number.to_bytes(2, "big"))
                assert joined.error_code == ErrorCode.NONE
                member = joined.member_id
                assigned = {each.member_id: b"for " + bytes(each.metadata) for each in joined.members}
                synced = sync(wire, "many", joined, assigned)
                if synced.error_code == ErrorCode.NONE and len(assigned) == MEMBERS:
                    are_all_in.set()
                while heartbeat(wire, "many", joined) == ErrorCode.NONE:
                    if are_all_in.wait(0.1):
                        return joined.generation_id, bytes(synced.assignment), wanted
        raise AssertionError("no end of rebalances")

    with ThreadPoolExecutor(MEMBERS) as pool:
        outcomes = [*pool.map(live, range(MEMBERS))]
    assert len({generation for generation, _, _ in outcomes}) == 1
    assert all(assigned == wanted for _, assigned, wanted in outcomes)


def test_thousands_of_tiny_groups(broker: Broker) -> None:
    names = [f"tiny-{number}" for number in range(GROUPS)]
    before = broker.rss_bytes()
    with patient_wire(broker) as wire:
        assert {commit(wire, name, at) for at, name in enumerate(names)} == {ErrorCode.NONE}
        assert broker.rss_bytes() - before < GROUPS * BYTES_A_GROUP
        assert committed(wire, names) == [*range(GROUPS)]
        listed = {group.group_id for group in wire.call(ListGroupsRequest(states_filter=["empty"]), 5).groups}
        assert listed >= {*names}
    broker.target.kill(1)
    broker.target.restart(1)
    await_coordinator(broker)
    with patient_wire(broker) as wire:
        assert committed(wire, names) == [*range(GROUPS)]


def test_an_assignment_that_no_record_can_hold(broker: Broker) -> None:
    with patient_wire(broker) as wire, patient_wire(broker) as other:
        bystander = member_alone(other, "bystander")
        joined = join(wire, "greedy")
        synced = sync(wire, "greedy", joined, {joined.member_id: bytes(2 * MIB)})
        assert (synced.error_code, synced.assignment) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
        again = join(wire, "greedy", joined.member_id)
        assert again.generation_id == joined.generation_id + 1
        assert sync(wire, "greedy", again, {again.member_id: b"modest"}).assignment == b"modest"
        assert heartbeat(other, "bystander", bystander) == ErrorCode.NONE


def test_metadata_that_no_record_can_hold(broker: Broker) -> None:
    """JoinGroup passes the metadata to the leader. SyncGroup fails, because the group's record would be too large."""
    with patient_wire(broker) as wire:
        joined = join(wire, "talkative", metadata=bytes(2 * MIB))
        assert [len(each.metadata) for each in joined.members] == [2 * MIB]
        assert sync(wire, "talkative", joined, {}).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("lie", [-(2**31), -1, 0, 2, 2**31 - 1])
def test_members_that_lie_about_their_generation(broker: Broker, lie: int) -> None:
    group = f"lied-to-{lie}"
    with patient_wire(broker) as wire:
        joined = member_alone(wire, group)
        assert commit(wire, group, 7, member=joined.member_id, generation=1) == ErrorCode.NONE
        assert commit(wire, group, 8, member=joined.member_id, generation=lie) == ErrorCode.ILLEGAL_GENERATION
        joined.generation_id = lie
        assert heartbeat(wire, group, joined) == ErrorCode.ILLEGAL_GENERATION
        assert sync(wire, group, joined, {}).error_code == ErrorCode.ILLEGAL_GENERATION
        assert committed(wire, [group]) == [7]
        joined.generation_id = 1
        assert heartbeat(wire, group, joined) == ErrorCode.NONE


def test_a_member_that_hangs_up_while_it_waits_is_one_that_is_silent(broker: Broker) -> None:
    with patient_wire(broker) as wire:
        joined = member_alone(wire, "deserted")
        impatient = Wire.connect(broker.member.node.host, broker.member.node.port, timeout_s=0.2)
        with impatient, pytest.raises(WireError):
            join(impatient, "deserted")
        assert heartbeat(wire, "deserted", joined) == ErrorCode.REBALANCE_IN_PROGRESS
        again = join(wire, "deserted", joined.member_id)
        assert (again.generation_id, len(again.members)) == (2, 2), "its session has not ended"
