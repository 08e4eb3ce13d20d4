"""The same steps for a shard of ours and for Apache Kafka's group coordinator, which `java/Groups.java` drives.

Kafka makes each step first: the member ids that it draws are given to ours, so that everything else can be compared as it is.
After each step the answers, what the records change, and what is listed, described and fetched are compared. Either loads its
own log again or the other's. `drawn_groups` names the steps that it does not draw because the two differ. Not compared here are:

- targets of the uniform assignor, which follow the order of a hash table: groups have the range assignor, or one of two that
  both sides have for this comparison;
- error messages, and the other fields of a response with an error;
- records that the same write undoes: ours writes the result of a change of type, Kafka each step to it;
- the response to a JoinGroup or SyncGroup that its member has repeated, and to the SyncGroup of a removed member: Kafka never
  sends one;
- entries that Kafka's snapshots have twice after a write that failed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from linearizability.targets.artifacts import java, kafka_jars
from reference.coordinator.consumer_group_records import VALUES
from reference.coordinator.group_records import decode_value, record_type
from reference.coordinator.group_settings import ConsumerGroupSettings
from reference.protocol.codec import decode, encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from reference.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from reference.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from reference.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from reference.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from reference.protocol.messages.sync_group import SyncGroupResponse
from reference.protocol.schema import Message
from tests.coordinator.our_groups import (
    CHECK_INTERVAL_MS,
    CLIENT,
    DESCRIBED_WITH,
    NOW,
    RESPONSES,
    OurGroups,
    RackedTopics,
    Row,
)
from tests.coordinator.passing_time import advance

SOURCE = Path(__file__).parent / "java" / "Groups.java"
GROUPS = ("g", "h")
CONFIG = {
    "group.max.size": 4,
    "offset.metadata.max.bytes": 10,
    "offsets.retention.minutes": 3,
    "offsets.retention.check.interval.ms": CHECK_INTERVAL_MS,
    "group.consumer.max.size": 4,
    "group.consumer.regex.refresh.interval.ms": 60_000,
}
KEYS = {key.KEY: (key, value) for key, value in VALUES.items()} | {
    GroupMetadataKey.KEY: (GroupMetadataKey, GroupMetadataValue),
    OffsetCommitKey.KEY: (OffsetCommitKey, OffsetCommitValue),
}
REFUSALS = {
    "NOT_ENOUGH_REPLICAS": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "NOT_LEADER_OR_FOLLOWER": ErrorCode.NOT_COORDINATOR,
    "RECORD_LIST_TOO_LARGE": ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error of an append -> the error to which `node.coordination` maps it."""
IN_ORDER = ("protocols", "supported_protocols")
"""Lists whose order is significant."""
UNCOMPARED = ("error_message",)


class Difference(AssertionError):
    """Kafka's coordinator and ours differ."""


class Kafka:
    """Kafka's coordinator, in a process of its own."""

    def __init__(self, source: Path = SOURCE) -> None:
        class_path = ":".join(str(jar) for jar in kafka_jars("4.3.1"))
        self._process = subprocess.Popen(
            [str(java()), "-XX:TieredStopAtLevel=1", "-cp", class_path, str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def make(self, step: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(step) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"'):
                return json.loads(line)
        raise AssertionError("Kafka's coordinator ended")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def plain(value: Any, name: str = "") -> Any:
    """A message as comparable values: sets are sorted, and bytes copied."""
    if isinstance(value, Message):
        if isinstance(value, JoinGroupResponse):
            value.protocol_name = value.protocol_name or ""  # as versions before 7 have it
            if value.error_code != ErrorCode.NONE:
                return {"error": int(value.error_code), "member": value.member_id}
        return {
            each.name: plain(getattr(value, each.name), each.name)
            for each in value.FIELDS
            if each.name not in UNCOMPARED
        }
    if isinstance(value, list):
        listed = [plain(each) for each in cast(list[Any], value)]
        return listed if name in IN_ORDER else sorted(listed, key=repr)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return int(value) if isinstance(value, ErrorCode) else value


def plain_record(row: Row) -> Any:
    key, value = bytes.fromhex(row[0]), bytes.fromhex(row[1])
    table, value_table = KEYS[record_type(key)]
    return (
        table.__name__,
        plain(decode(table, 0, key[2:])),
        value[:2] if value else None,
        plain(decode_value(value_table, value or None)),
        row[2],
    )


@dataclass
class Step:
    """One step for both coordinators; `request` if it is a request."""

    op: str
    request: Message | None = None
    version: int = 0
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    ours: Any = None
    """Our argument in place of `arguments`: the log, or the changed topic and whether it is new or deleted."""

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.arguments.items() if name not in ("log", "brokers")}
        return f"{self.op} {self.version} {self.request or ''} {shown or ''}"


class PairedGroups:
    """A shard of ours beside Kafka's; `now` is the time of the next step."""

    def __init__(self, kafka: Kafka, seed: int, settings: ConsumerGroupSettings, **topics: int) -> None:
        self.kafka = kafka
        self.topics = RackedTopics(**topics)
        self.ours = OurGroups(self.topics, settings)
        self.now = NOW
        self.log: list[Row] = []
        self.kafkas_log: list[Row] = []
        self._requests: dict[str, Message] = {}
        config = CONFIG | {
            "group.consumer.migration.policy": settings.migration_policy,
            "group.consumer.assignment.interval.ms": settings.assignment_interval_ms,
        }
        kafka.make({"op": "begin", "seed": seed, "now": NOW, "config": config, **self.topics.described()})

    def make(self, step: Step, token: str = "") -> dict[str, Message]:
        """Make a step on both sides; return the responses. Errors: Difference."""
        ours = self.ours
        ours.answers, ours.written = {}, []
        probes = {f"probe{number}": probe for number, probe in enumerate(_probes())}
        theirs = self.kafka.make(self._as_json(step, token, probes))
        answered = self._decoded(theirs["answers"])
        ours.ids.learn(_ids(answered.values()))
        advance(ours, self.now)
        self._make_ours(step, token, answered)
        advance(ours, self.now)
        ours.refusal = None
        answers = {**ours.answers}
        for name, probe in probes.items():
            ours.handle(probe, _version(probe), name)
        kafkas: list[Row] = [(row[0], row[1], row[2], row[3]) for row in theirs["written"] if not row[3]]
        for name in sorted({*answers, *answered.keys() - probes.keys()}):
            if name in answered or not _is_abandoned(answers[name]):
                _compare(name, plain(answers.get(name)), plain(answered.get(name)))
        _compare("records", _net(ours.written, self.log), _net(kafkas, self.kafkas_log))
        for name in probes:
            _compare(name, plain(ours.answers[name]), plain(answered[name]))
        self._take_order(answered)
        self.log += ours.written
        self.kafkas_log += kafkas
        return answers

    def _as_json(self, step: Step, token: str, probes: Mapping[str, Message]) -> dict[str, Any]:
        self._requests |= probes
        asked = [_as_json(probe, _version(probe), name) for name, probe in probes.items()]
        whole = {"op": step.op, "now": self.now, "probes": asked, **step.arguments}
        if step.request is not None:
            self._requests[token] = step.request
            whole |= _as_json(step.request, step.version, token)
        return whole

    def _decoded(self, answers: Mapping[str, str]) -> dict[str, Message]:
        found: dict[str, Message] = {}
        for token, text in answers.items():
            if text.startswith("error"):
                raise Difference(f"{token}: {text}")
            version, data = text.split(" ")
            found[token] = decode(RESPONSES[type(self._requests[token])], int(version), bytes.fromhex(data))
            _keep_one_of_each(found[token])
        return found

    def _make_ours(self, step: Step, token: str, kafkas: Mapping[str, Message]) -> None:
        ours, arguments = self.ours, step.arguments
        ours.refusal = REFUSALS.get(arguments.get("refusal", ""))
        if step.request is not None:
            received = decode(type(step.request), step.version, encode(step.request, step.version))
            ours.handle(received, step.version, token)
        elif step.op == "end transaction":
            ours.shard.replay_marker((arguments["producer"], arguments["epoch"]), arguments["commits"])
        elif step.op == "load":
            ours.load(step.ours, lambda: self._take_order(kafkas))  # sessions that end together do so in this order
        elif step.op == "topics":
            changed, is_new, gone = step.ours
            ours.shard.topics_changed([changed], are_new=is_new)
            if gone:
                ours.shard.topics_deleted({gone: changed}, self.now)

    def _take_order(self, answered: Mapping[str, Message]) -> None:
        """Put our members into the order of Kafka's hash tables, which decides a leader's successor."""
        for described in (answered["probe1"], answered["probe2"]):
            assert isinstance(described, DescribeGroupsResponse | ConsumerGroupDescribeResponse)
            for each in described.groups:
                members: dict[str, Any] = getattr(self.ours.shard.groups.get(each.group_id), "members", {})
                for member in [member for member in each.members if member.member_id in members]:
                    members[member.member_id] = members.pop(member.member_id)


def _probes() -> list[Message]:
    """The requests after each step; the second and the third describe the members."""
    fetched = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]
    return [
        ListGroupsRequest(),
        DescribeGroupsRequest(groups=[*GROUPS]),
        ConsumerGroupDescribeRequest(group_ids=[*GROUPS]),
        *(OffsetFetchRequest(groups=[each], require_stable=stable) for each in fetched for stable in (False, True)),
    ]


def _version(probe: Message) -> int:
    return (
        DESCRIBED_WITH
        if isinstance(probe, DescribeGroupsRequest)
        else 9
        if isinstance(probe, OffsetFetchRequest)
        else 0
    )


def _as_json(request: Message, version: int, token: str) -> dict[str, Any]:
    name = type(request).__name__.removesuffix("Request")
    api = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name).strip("_")
    body = encode(request, version).hex()
    return {"api": api, "version": version, "body": body, "token": token, "client": CLIENT.id}


def _net(written: Sequence[Row], log: Sequence[Row]) -> list[Any]:
    """The net change by records: the last one of each key, and a tombstone only if it removes something."""
    before = {key: value for key, value, _, is_marker in log if not is_marker}
    last = {(key, producer): value for key, value, producer, _ in written}
    rows = [(key, value, producer, False) for (key, producer), value in last.items() if value or before.get(key)]
    return sorted(map(plain_record, rows), key=repr)


def _compare(what: str, ours: Any, kafkas: Any) -> None:
    if ours != kafkas:
        raise Difference("\n".join(_differences(what, ours, kafkas)))


def _ids(answers: Iterable[Message]) -> Iterable[str]:
    """The member ids in answers."""
    for each in answers:
        match each:
            case JoinGroupResponse() | ConsumerGroupHeartbeatResponse():
                yield each.member_id or ""
            case DescribeGroupsResponse() | ConsumerGroupDescribeResponse():
                yield from (member.member_id for group in each.groups for member in group.members)
            case _:
                pass


def _keep_one_of_each(answer: Message) -> None:
    """Drop the second of equal entries: after a failed write Kafka's snapshots have some twice."""
    match answer:
        case ListGroupsResponse():
            answer.groups = [*{each.group_id: each for each in answer.groups}.values()]
        case ConsumerGroupDescribeResponse():
            for group in answer.groups:
                group.members = [*{each.member_id: each for each in group.members}.values()]
        case OffsetFetchResponse():
            for fetched in answer.groups:
                fetched.topics = [*{each.name: each for each in fetched.topics}.values()]
                for topic in fetched.topics:
                    topic.partitions = [*{each.partition_index: each for each in topic.partitions}.values()]
        case _:
            pass


def _is_abandoned(answer: Message) -> bool:
    """Whether Kafka never answers the request: its member has repeated it, or it is the SyncGroup of a removed member."""
    if isinstance(answer, SyncGroupResponse) and answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        return True
    is_waiting_kind = isinstance(answer, JoinGroupResponse | SyncGroupResponse)
    return is_waiting_kind and answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def _differences(where: str, ours: Any, kafkas: Any) -> Iterable[str]:
    """The paths at which two values differ."""
    if ours == kafkas:
        return
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        for name in ours:
            yield from _differences(f"{where} {name}", ours[name], kafkas[name])
    elif isinstance(ours, list | tuple) and isinstance(kafkas, list | tuple) and len(ours) == len(kafkas):
        for number, (mine, theirs) in enumerate(zip(ours, kafkas, strict=True)):
            yield from _differences(f"{where} {number}", mine, theirs)
    elif isinstance(ours, list) and isinstance(kafkas, list):
        yield f"{where}: {len(ours)} here, {len(kafkas)} in Kafka"
        yield f"{where}: {[each for each in ours if each not in kafkas]} here"
        yield f"{where}: {[each for each in kafkas if each not in ours]} in Kafka"
    else:
        yield f"{where}: {ours!r} here, {kafkas!r} in Kafka"
