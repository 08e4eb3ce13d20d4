"""Each version of each API that a listener advertises is answered there, on brokers' and on controllers' listeners."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from linearizability.targets import open_target
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.wire import Wire
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_acls import DescribeAclsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import FIRST_EPOCH, NO_EPOCH, LeaderEpoch
from reference.protocol.schema import Message

pytestmark = pytest.mark.process
METADATA_TOPIC, METADATA_TOPIC_ID = "__cluster_metadata", UUID(int=1)
FIRST_WITH_ERROR, FIRST_BY_ID = 7, 13
NOT_EMPTY: dict[int, Message] = {
    ProduceRequest.KEY: ProduceRequest(acks=1, timeout_ms=1000),
    DescribeAclsRequest.KEY: DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    ),
}
"""An empty Produce has acks=0, which is not answered; an empty filter of ACLs closes the connection."""
FIRST_PRODUCE = 3
"""Versions below it are advertised for librdkafka's sake, and close the connection, as Kafka's do."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceCluster]:
    with open_target("reference:1", folder=tmp_path_factory.mktemp("versions")) as opened:
        assert isinstance(opened, ReferenceCluster)
        yield opened
    logs = [path.read_text() for path in opened.folder.rglob("node.log")]
    assert logs and not [each for each in logs if "Traceback" in each], logs


def fetch(version: int) -> FetchRequest:
    by_id = version >= FIRST_BY_ID
    partition = FetchRequest.FetchPartition(
        partition=0,
        partition_max_bytes=1000,
        current_leader_epoch=LeaderEpoch(1),
        last_fetched_epoch=FIRST_EPOCH if version >= 12 else NO_EPOCH,
    )
    topic = FetchRequest.FetchTopic(
        topic="" if by_id else METADATA_TOPIC,
        topic_id=METADATA_TOPIC_ID if by_id else UUID(int=0),
        partitions=[partition],
    )
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic])


def ports(target: ReferenceCluster) -> dict[str, int]:
    (member,) = target.members
    return {"broker": member.node.port, "controller": member.controller_port}


@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_an_empty_request_of_each_version_is_answered(target: ReferenceCluster, listener: str) -> None:
    port = ports(target)[listener]
    with Wire.connect("127.0.0.1", port) as wire:
        advertised = wire.versions()
    assert len(advertised) > 15
    for key, (lowest, highest) in advertised.items():
        request: type[Message] = APIS[key].request
        lowest = max(lowest, FIRST_PRODUCE) if key == ProduceRequest.KEY else lowest
        for version in range(lowest, highest + 1):
            with Wire.connect("127.0.0.1", port) as wire:
                wire.call(NOT_EMPTY.get(key) or request(), version)


def test_the_metadata_log_is_fetched_by_its_topics_id_alone(target: ReferenceCluster) -> None:
    """Kafka 4.3.1 calls a fetch that names it INVALID_REQUEST; up to version 6 there is no field to say so."""
    for version in range(4, FIRST_BY_ID):
        with Wire.connect("127.0.0.1", ports(target)["controller"]) as wire:
            answer = wire.call(fetch(version), version)
            reported = ErrorCode.INVALID_REQUEST if version >= FIRST_WITH_ERROR else ErrorCode.NONE
            assert (answer.error_code, answer.responses) == (reported, [])
    for version in range(FIRST_BY_ID, 18):
        with Wire.connect("127.0.0.1", ports(target)["controller"]) as wire:
            answer = wire.call(fetch(version), version)
            assert answer.error_code == ErrorCode.NONE and len(answer.responses) == 1
