"""The records of consumer groups: Kafka's own decoder reads them, and ours refuses malformed ones. (KIP-848)"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reference.coordinator.consumer_group_records import decode_record, target_metadata_record
from reference.protocol.codec import CodecError
from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record
from tests.coordinator.consumer_room import Client, Room, settle
from tests.storage.dump import complaints, dump


def an_incarnation() -> Room:
    """A group whose log has every kind of record: patterns, static members, revocations, and leaves."""
    room = Room(foo=2, bar=1)
    members = [Client(room, "a", topics=["foo"], instance="i", assignor="range"), Client(room, "b", topics=["foo"])]
    for member in members:
        member.join()
    settle(room, members, 3)
    members[1].regex = "b.*"
    members[1].leave()
    members[1].join()
    room.pass_time(1)
    settle(room, members, 3)
    members[0].leave(-2)
    members[1].leave()
    return room


def dumped(room: Room, folder: Path) -> list[tuple[Any, Any]]:
    file = folder / "00000000000000000000.log"
    records = [Record(Offset(at), TimestampMs(0), key, value, ()) for at, (key, value) in enumerate(room.log)]
    file.write_bytes(build(records))
    text = dump([file], "--offsets-decoder")
    assert not complaints(text)
    found = re.findall(r"key: (\{.*\}) payload: (.*)", text)
    return [(json.loads(key), json.loads(value) if value.startswith("{") else None) for key, value in found]


@pytest.mark.java
def test_kafka_reads_every_record(tmp_path: Path) -> None:
    room = an_incarnation()
    found = dumped(room, tmp_path)
    assert len(found) == len(room.log)
    assert {key["type"] for key, _ in found} == {"3", "5", "6", "7", "8", "16"}
    newest = {json.dumps(key): value for key, value in found}

    def value(type: int, **data: str) -> Any:
        return newest[json.dumps({"type": str(type), "data": {"groupId": "g", **data}})]["data"]

    group = room.group()
    assert value(3) == {"epoch": group.epoch, "metadataHash": group.metadata_hash}
    assert value(6)["assignmentEpoch"] == group.assignment_epoch
    member = value(5, memberId="a")
    assert (member["instanceId"], member["subscribedTopicNames"], member["serverAssignor"]) == ("i", ["foo"], "range")
    current = value(8, memberId="a")
    assert (current["memberEpoch"], current["state"]) == (-2, 0)
    assert [(topic["partitions"], topic["assignmentEpochs"]) for topic in current["assignedPartitions"]] == [([0], [0])]


def test_malformed_records_are_refused() -> None:
    key, value = target_metadata_record("g", 3, TimestampMs(5))
    assert value is not None
    assert decode_record(b"\x00\x02" + key[2:], value) is None, "a classic group's"
    for broken_key, broken_value in ((key[:-1], value), (key, value[:1]), (key, b""), (key, value[:3])):
        with pytest.raises(CodecError):
            decode_record(broken_key, broken_value)
