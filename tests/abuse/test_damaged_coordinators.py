"""An internal topic that is damaged on disk: groups and transactions of the damaged partition are refused, all others served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import commit_request, fetch_offsets_request
from linearizability.targets import Target, TargetError, open_target
from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.list_groups import ListGroupsRequest
from reference.storage.segment_checksums import SEGMENT_CHECKSUMS
from tests.abuse.broker import Broker

PARTITIONS = 2
KEYS = [f"key-{number}" for number in range(12)]
DAMAGED = [key for key in KEYS if partition_for(key, PARTITIONS) == 0]
WHOLE = [key for key in KEYS if key not in DAMAGED]
DAMAGES = {"a batch's magic": 16, "a record": 61}
"""Damaged field -> its place in the first batch, where zeros are written."""
DAMAGED_BYTES = 4
PATIENCE_S = 60.0
GROUP, TRANSACTION = 0, 1


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    config = {"offsets.topic.num.partitions": str(PARTITIONS), "transaction.state.log.num.partitions": str(PARTITIONS)}
    with open_target("reference:1", folder=tmp_path, config=config) as target:
        yield target


def call(broker: Broker, request: Any, version: int | None = None) -> Any:
    with broker.wire() as wire:
        return wire.call(request, version)


def commit(broker: Broker, group: str) -> int:
    """A group commits an offset."""
    return call(broker, commit_request(group, {("events", 0): 7}), 9).topics[0].partitions[0].error_code


def committed(broker: Broker, group: str) -> tuple[int, list[int]]:
    """The error code of a group, and its offset where it has one."""
    found = call(broker, fetch_offsets_request({group: [("events", 0)]}), 9).groups[0]
    return found.error_code, [each.partitions[0].committed_offset for each in found.topics]


def begin_session(broker: Broker, transactional_id: str) -> int:
    """A transactional producer begins, or begins again."""
    return call(broker, ProducerSession(transactional_id).begin()).error_code


def patiently(ask: Callable[[Broker, str], int], broker: Broker, key: str) -> int:
    """The error code that `ask` gets once the coordinator is available and loaded."""
    passing = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
    until = time.monotonic() + PATIENCE_S
    while (code := ask(broker, key)) in passing:
        assert time.monotonic() < until, ErrorCode(code).name
        time.sleep(0.05)
    return code


def make_coordinators(broker: Broker, key_type: int) -> None:
    """Create the internal topic: the first FindCoordinator request does this."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
    assert patiently(lambda *_: call(broker, request).coordinators[0].error_code, broker, "any") == ErrorCode.NONE


def damage(target: Target, topic: str, at: int) -> None:
    """Stop the broker in good order, put zeros into the first batch of the topic's partition 0, and start it again.

    The first start fails and names the file. A folder that Apache Kafka wrote has no segment checksums: there the damage shows
    when the batch is read. So the second start is without them.
    """
    target.stop(1)
    data_folder = Broker(target).member.data
    (segment,) = data_folder.glob(f"{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    data[at : at + DAMAGED_BYTES] = bytes(DAMAGED_BYTES)
    segment.write_bytes(data)
    with pytest.raises(TargetError, match=f"{topic}-0: {segment.name} is not the file"):
        target.restart(1)
    (data_folder / SEGMENT_CHECKSUMS).unlink()
    target.restart(1)


@pytest.mark.parametrize("at", DAMAGES.values(), ids=DAMAGES)
def test_damaged_offsets_harm_the_groups_of_their_partition_only(target: Target, at: int) -> None:
    broker = Broker(target)
    broker.create("events")
    make_coordinators(broker, GROUP)
    assert {patiently(commit, broker, group) for group in KEYS} == {ErrorCode.NONE}
    damage(target, OFFSETS_TOPIC, at)
    assert patiently(commit, broker, WHOLE[0]) == ErrorCode.NONE
    assert {group: committed(broker, group) for group in WHOLE} == dict.fromkeys(WHOLE, (ErrorCode.NONE, [7]))
    refused = ErrorCode.NOT_COORDINATOR, list[int]()
    assert {group: committed(broker, group) for group in DAMAGED} == dict.fromkeys(DAMAGED, refused)
    assert {commit(broker, group) for group in DAMAGED} == {ErrorCode.NOT_COORDINATOR}
    with broker.wire() as wire:
        listed = wire.call(ListGroupsRequest())
    assert (listed.error_code, {group.group_id for group in listed.groups}) == (ErrorCode.NONE, {*WHOLE})
    expect_well(broker, OFFSETS_TOPIC)


@pytest.mark.parametrize("at", DAMAGES.values(), ids=DAMAGES)
def test_damaged_transactions_harm_the_producers_of_their_partition_only(target: Target, at: int) -> None:
    broker = Broker(target)
    make_coordinators(broker, TRANSACTION)
    assert {patiently(begin_session, broker, id) for id in KEYS} == {ErrorCode.NONE}
    damage(target, TRANSACTIONS_TOPIC, at)
    assert {patiently(begin_session, broker, id) for id in WHOLE} == {ErrorCode.NONE}
    assert {begin_session(broker, id) for id in DAMAGED} == {ErrorCode.NOT_COORDINATOR}
    expect_well(broker, TRANSACTIONS_TOPIC)


def expect_well(broker: Broker, damaged: str) -> None:
    """Check that other clients are served, and that the log names the damaged partition."""
    broker.produce("another", 3)
    assert f"{damaged}-0: cannot be loaded from offset 0 on" in broker.log()
    assert "Traceback" not in broker.log()
