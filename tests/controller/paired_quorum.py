"""The same steps for a quorum member of ours and for Apache Kafka's KafkaRaftClient: Kafka's by `java/Quorums.java`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from reference.controller.metadata_records import encode_metadata_record
from reference.controller.quorum_roles import Role
from reference.controller.quorum_snapshots import BOOTSTRAP, SnapshotId
from reference.protocol.apis import APIS
from reference.protocol.codec import decode, encode
from reference.protocol.messages.api_versions import ApiVersionsResponse
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.primitives import NO_UUID, NodeId
from reference.protocol.records.batch import read_batches
from reference.protocol.schema import Message
from reference.storage.checkpoints import text_of_uuid
from tests.controller.quorum_members import LOG_FOLDER, Members, topic

NODE = NodeId(0)
TICK_MS = 10
PAUSE_MS = 20
"""The time that passes with every response, so that pauses after some of them make no difference."""
KAFKA_SETTINGS = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "2000",
    "controller.quorum.append.linger.ms": "0",
}

UNCOMPARED = {
    "FetchRequest": {"max_bytes", "topic", "isolation_level", "session_id", "session_epoch", "rack_id", "min_bytes"},
    "EndQuorumEpochRequest": {"leader_endpoints"},
    "FetchResponse": {"session_id", "topic"},
    "FetchSnapshotResponse": {"unaligned_records", "size"},
    "AddRaftVoterResponse": {"error_message"},
    "RemoveRaftVoterResponse": {"error_message"},
    "ApiVersionsRequest": {"client_software_name", "client_software_version"},
    "DescribeQuorumResponse": {"nodes", "error_message"},
}
"""Message -> fields that are not compared, because they have no meaning between members."""


def plain(value: Any, ignored: set[str]) -> Any:
    """A message without the fields that are not compared."""
    if isinstance(value, Message):
        return {
            field.name: plain(getattr(value, field.name), ignored)
            for field in value.FIELDS
            if field.name not in ignored
        }
    if isinstance(value, list):
        return [plain(each, ignored) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return [
            (each.header.base_offset, each.header.last_offset, each.header.leader_epoch) for each in read_batches(value)
        ]
    return str(value) if isinstance(value, UUID) else value


def seen(peer: int, name: str, message: Message, *, is_static: bool) -> tuple[int, str, Any]:
    ignored = {"throttle_time_ms", "unknown_tagged_fields", *UNCOMPARED.get(name, ())}
    if is_static:
        ignored |= {"node_endpoints", "leader_endpoints", "host", "port"}
    return peer, name, plain(message, ignored)


class PairedQuorum:
    """A member of ours, node 0 of voters 0 to 2; `steps` are for Kafka's member, `ours` has our results."""

    def __init__(self, *, changing: bool, folder: str) -> None:
        self.changing = changing
        self.members = Members(3, 2, changing=changing, reporting=True)
        self.steps: list[str] = []
        self.ours: list[dict[str, Any]] = []
        self._tokens = 0
        self._start = self.members.now
        begin: dict[str, Any] = {
            "folder": folder,
            "node": NODE,
            "now": self.members.now,
            "directory": text_of_uuid(self.members.directories[NODE]),
            "voters": [] if changing else [0, 1, 2],
            "bootstrap": ["node-1", "node-2", "node-3"] if changing else [],
            "chance": 0.0,
            "settings": KAFKA_SETTINGS | ({"controller.quorum.bootstrap.servers": "node-1:9093"} if changing else {}),
        }
        if changing:
            path = LOG_FOLDER / BOOTSTRAP.file_name
            begin["checkpoint"] = self.members.disks[NODE].read_file(path).hex()
        self.members.start(NODE)
        self._note("begin", **begin)

    @property
    def quorum(self) -> Any:
        return self.members[NODE]

    @property
    def open_requests(self) -> list[tuple[NodeId, Message]]:
        return [(peer, request) for peer, (request, _) in self.quorum.requests._open.items()]

    def is_open(self, peer: int, request: Message) -> bool:
        return any(each is request for to, each in self.open_requests if to == peer)

    # ---- steps

    def restart(self) -> None:
        self.members.answers.clear()
        del self.members.quorums[NODE]
        self.members.start(NODE)
        self._note("restart")

    def pass_time(self, ms: int) -> None:
        self._tick(ms)
        self._note("time", ms=ms)

    def _tick(self, ms: int) -> None:
        for _ in range(0, ms, TICK_MS):
            self.members.now += TICK_MS
            self.quorum.tick(self.members.now)

    def ask(self, request: Message) -> None:
        """Handle a request of another node."""
        self._tokens += 1
        token, now = self._tokens, self.members.now
        version = type(request).VERSIONS.highest
        data = encode(request, version)
        copy: Any = decode(type(request), version, data)
        if isinstance(copy, DescribeQuorumRequest):
            response: Any = self.quorum.handle_describe_quorum(copy, now)
        else:
            response = self.members.ask(NODE, copy, token)
        if response is not None:
            self.members.answers.append((token, response))
        self._note("request", api=request.KEY, version=version, token=token, data=data.hex())

    def respond(self, peer: int, request: Message, response: Message | None) -> None:
        """Answer an open request, or lose it."""
        given = {"peer": peer, "api": request.KEY, "any": self._is_for_any(peer, request)}
        now = self.members.now
        if response is None:
            self.quorum.unreachable(peer, request, now)
            self._tick(PAUSE_MS)
            self._note("lost", **given)
            return
        version = 4 if isinstance(response, ApiVersionsResponse) else type(response).VERSIONS.highest
        data = encode(response, version)
        self.quorum.receive(peer, request, decode(type(response), version, data), now)
        self._tick(PAUSE_MS)
        self._note("response", version=version, data=data.hex(), **given)

    def append(self, numbers: list[int]) -> None:
        records = [topic(number) for number in numbers]
        self.quorum.append(records, self.members.now)
        self._note("append", records=[encode_metadata_record(each).hex() for each in records])

    def write_snapshot(self) -> None:
        """Write a snapshot up to the high watermark, unless there is one."""
        log, end = self.quorum.log, self.quorum.high_watermark
        latest = log.snapshots.latest
        if end <= log.start or (latest is not None and end <= latest.end_offset):
            return
        id = SnapshotId(log.log.epoch_at(end - 1), end)
        self.quorum.write_snapshot(end, [topic(1)], self.members.now)
        self._note("snapshot", offset=end, epoch=id.epoch, timestamp=self.members.now)

    def _is_for_any(self, peer: int, request: Message) -> bool:
        known = self.quorum.stored.leader if self.quorum.role is Role.FOLLOWER else -1
        return isinstance(request, FetchRequest) and peer != known

    # ---- what each step gave

    def _note(self, op: str, **fields: Any) -> None:
        self.steps.append(json.dumps({"op": op, **fields}))
        quorum, stored = self.quorum, self.quorum.stored
        is_static = not self.changing
        sent: list[Any] = []
        for peer, request in quorum.take_sends():
            copy = decode(
                type(request), type(request).VERSIONS.highest, encode(request, type(request).VERSIONS.highest)
            )
            sent.append(seen(peer, type(request).__name__, copy, is_static=is_static))
        answers = [
            seen(token, type(response).__name__, response, is_static=is_static)
            for token, response in [*self.members.answers, *quorum.take_answers()]
        ]
        self.members.answers.clear()
        voted = "-" if stored.voted < 0 else f"{stored.voted} {directory_text(stored.voted_directory)}"
        voted = voted.split()[0] if is_static else voted
        self.ours.append(
            {
                "epoch": stored.leader_epoch,
                "leader": stored.leader,
                "voted": voted,
                "role": quorum.role.value,
                "high watermark": quorum.high_watermark,
                "is ready": quorum.is_ready,
                "start": quorum.log.start,
                "end": quorum.log.end,
                "last epoch": quorum.log.last_epoch,
                "voters": sorted(f"{each.id} {directory_text(each.directory)}" for each in quorum.voters),
                "level": quorum.kraft_version,
                "sent": sent,
                "answers": answers,
            }
        )


def directory_text(directory: UUID) -> str:
    return "-" if directory == NO_UUID else text_of_uuid(directory)


# ---- comparing


class Comparison:
    """Compares the results of one of our members with those of Kafka's, step by step."""

    def __init__(self, *, is_static: bool) -> None:
        self._is_static = is_static
        self._given_up: set[int] = set()
        """Fetches that waited at a leader that resigned: ours answers them at once, Kafka's mostly when their time is over."""

    def difference(self, step: dict[str, Any], mine: dict[str, Any], kafkas: dict[str, Any]) -> str | None:
        """The difference after a step; None if there is none."""
        if "dead" in kafkas:
            return f"Kafka's member fails: {kafkas['dead']}"
        for name in ("epoch", "role", "leader", "voters", "level", "start", "end", "last epoch"):
            if mine[name] != kafkas[name]:
                return f"{name}: {mine[name]}, Kafka {kafkas[name]}"
        # A leader's vote counts for nothing any more: Kafka does not keep it.
        # With the voters of the configuration Kafka's file does not keep the directory of the vote, and ours does not at all.
        voted = kafkas["voted"].split()[0] if self._is_static else kafkas["voted"]
        if mine["role"] not in ("leader", "resigned") and mine["voted"] != voted:
            return f"voted: {mine['voted']}, Kafka {kafkas['voted']}"
        # A new leader of Kafka's, and a member after a start, do not know a high watermark.
        known = kafkas["high watermark"]
        is_ready = mine["role"] == "leader" and mine["is ready"]
        if (known >= 0 and mine["high watermark"] != known) or (mine["role"] == "leader" and is_ready != (known >= 0)):
            return f"high watermark: {mine['high watermark']}, Kafka {known}"
        for kind in ("sent", "answers"):
            theirs = [decoded({**row, "request": kind == "sent"}, is_static=self._is_static) for row in kafkas[kind]]
            rows = (
                [self._alike(each, step, mine) for each in mine[kind]],
                [self._alike(each, step, mine) for each in theirs],
            )
            ours, others = (
                sorted({str(row): row for row in side if row is not None}.values(), key=str) for side in rows
            )
            if ours != others:
                return f"{kind}: {unlike(ours, others)}"
        return None

    def _alike(
        self, message: tuple[int, str, Any], step: dict[str, Any], state: dict[str, Any]
    ) -> tuple[int, str, Any] | None:
        """A message without the fields that may differ; None if the whole message may."""
        peer, name, fields = message
        if name == "FetchRequest":
            if not (state["role"] == "follower" and peer == state["leader"]):
                peer = -9  # any node will do
            fields["topics"][0]["partitions"][0].pop("high_watermark")
        elif name == "FetchResponse" and fields["responses"]:
            if state["role"] != "leader" and peer != step.get("token"):
                self._given_up.add(peer)
            if peer in self._given_up:
                return None
            partition = fields["responses"][0]["partitions"][0]
            partition["records"] = (partition["records"] or [])[:1]
            if partition["error_code"]:
                partition.pop("log_start_offset")
        elif name == "DescribeQuorumResponse":
            for each in fields["topics"][0]["partitions"]:
                each["observers"] = [
                    {name: row[name] for name in ("replica_id", "replica_directory_id")} for row in each["observers"]
                ]
                for kind in ("current_voters", "observers"):
                    each[kind].sort(key=lambda row: (row["replica_id"], row["replica_directory_id"]))
        return peer, name, fields


def unlike(mine: Any, theirs: Any, path: str = "") -> str:
    """The first place where two values differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() == theirs.keys():
        return next(unlike(mine[key], theirs[key], f"{path}.{key}") for key in mine if mine[key] != theirs[key])
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple) and len(mine) == len(theirs):
        at = next(index for index, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1])
        named = f" {mine[1]}" if isinstance(mine, tuple) and len(mine) > 1 else ""
        return unlike(mine[at], theirs[at], f"{path}[{at}]{named}")
    return f"{path}: {mine}, Kafka {theirs}"


def decoded(row: Mapping[str, Any], *, is_static: bool) -> tuple[int, str, Any]:
    """A message as Quorums.java writes it."""
    api = APIS[row["api"]]
    form = api.request if row.get("request") else api.response
    return seen(
        row["peer"], form.__name__, decode(form, row["version"], bytes.fromhex(row["data"])), is_static=is_static
    )
