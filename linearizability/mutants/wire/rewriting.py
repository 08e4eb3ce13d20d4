"""The parts of lies: small functions that change a decoded message, or replace the frame that is sent.

A *change* takes the exchange and its decoded message, and changes the message in place; it may return an `Act` instead. A path
names a field from the message down, through lists and structures: `responses.partition_responses.base_offset`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from linearizability.mutants.wire.proxy import Answer, Exchange, ProxiedConnection, sized
from reference.protocol.codec import CodecError, encode
from reference.protocol.frames import decode_response, encode_response
from reference.protocol.records.batch import HEADER_BYTES, BatchHeader, read_batches
from reference.protocol.schema import Message, Versions

Act = Callable[[bytes], Answer]
"""From a frame, with its size, to the frames that are sent in its place."""
Change = Callable[[Exchange, Any], "Act | None"]


@dataclass(frozen=True)
class Lie:
    """One divergence that the proxy plants."""

    name: str
    api: str
    """The API whose requests or answers are rewritten; empty: any."""
    what: str
    spoken_of: str
    """Requirements (or areas) whose sentences exclude the divergence, of which one must fail; empty: a gap, or unseen."""
    answer: Change | None = None
    ask: Change | None = None
    raw: Callable[[Exchange, bytes], bytes | Answer | None] | None = None
    """Changes the response's bytes, without the size, instead of the message."""
    end: Callable[[ProxiedConnection], bytes | None] | None = None
    """The bytes to send when the broker closes the connection, which then stays open; None closes it."""
    versions: str = "0+"
    unseen: str = ""
    """The reason, if no client can see the divergence."""

    @property
    def accusers(self) -> tuple[str, ...]:
        """The requirements and areas of `spoken_of`."""
        return tuple(self.spoken_of.split())

    def is_spoken_of_by(self, id: str) -> bool:
        """Whether a requirement may fail because of the lie: an accuser, or the basic requirement of the API."""
        return id in self.accusers or id[:3] in self.accusers or id in BASIC.get(self.api, ())

    def concerns(self, exchange: Exchange) -> bool:
        """Whether an exchange is of the lie's API and versions."""
        return self.api in ("", exchange.api) and exchange.version in Versions.parse(self.versions)


GROUP = ("BAS-07",)
BASIC: dict[str, tuple[str, ...]] = {
    "ApiVersions": ("BAS-01",), "Metadata": ("BAS-01", "BAS-02"), "CreateTopics": ("BAS-02",), "Produce": ("BAS-03",),
    "Fetch": ("BAS-04",), "ListOffsets": ("BAS-05",), "FindCoordinator": ("BAS-06",), "JoinGroup": GROUP, "SyncGroup": GROUP,
    "Heartbeat": GROUP, "LeaveGroup": GROUP, "OffsetCommit": ("BAS-08",), "OffsetFetch": ("BAS-08",),
    "InitProducerId": ("BAS-09",), "AddPartitionsToTxn": ("BAS-10",), "EndTxn": ("BAS-10",),
    "ConsumerGroupHeartbeat": ("BAS-11",), "DescribeConfigs": ("BAS-12",), "DeleteRecords": ("BAS-13",),
}  # fmt: skip
"""API -> the requirements of its simplest use."""


class Liar:
    """The tamper that plants one lie."""

    def __init__(self, lie: Lie) -> None:
        self.lie = lie
        self.rewrites_requests = lie.ask is not None

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if self.lie.ask is None or not self.lie.concerns(exchange) or not exchange.frame:
            return None
        try:
            header, request = exchange.decoded()
            act = self.lie.ask(exchange, request)
            frame = sized(header + encode(request, exchange.version))
        except CodecError:
            return None
        return act(frame).frames if act else [frame]

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        if not self.lie.concerns(exchange):
            return None
        if self.lie.raw is not None:
            said = self.lie.raw(exchange, frame)
            return Answer([sized(said)]) if isinstance(said, bytes) else said
        if self.lie.answer is None:
            return None
        try:
            correlation_id, message = decode_response(exchange.key, exchange.version, frame)
            act = self.lie.answer(exchange, message)
            reported = b"".join(encode_response(exchange.key, exchange.version, correlation_id, message))  # type: ignore[arg-type]
        except CodecError:
            return None
        return act(reported) if act else Answer([reported])

    def ended(self, connection: ProxiedConnection) -> bytes | None:
        return self.lie.end(connection) if self.lie.end else None


# ---- fields


def owners(message: Any, path: Sequence[str]) -> Iterator[Any]:
    """The structures that hold the last field of a path."""
    if len(path) == 1:
        yield message
        return
    inner = getattr(message, path[0])
    for one in inner if isinstance(inner, list) else [inner] if inner is not None else []:
        yield from owners(one, path[1:])


def put(path: str, change: Any, where: Callable[[Any], bool] = lambda owner: True) -> Change:
    """Set fields: to a value, by a function of the old value, or by a table from old values to new ones."""
    *_, name = steps = path.split(".")

    def apply(exchange: Exchange, message: Any) -> None:
        for owner in owners(message, steps):
            if where(owner):
                setattr(owner, name, _changed(change, getattr(owner, name)))

    return apply


def _changed(change: Any, old: Any) -> Any:
    if isinstance(change, Mapping):
        return change.get(old, old)
    return change(old) if callable(change) else change


def errors(*pairs: int) -> Change:
    """Replace error codes everywhere in the response: the first of each pair by the second."""
    table = dict(zip(pairs[::2], pairs[1::2], strict=True))

    def apply(exchange: Exchange, message: Any) -> None:
        for owner in structures(message):
            for each in owner.FIELDS:
                if each.name in ("error_code", "partition_error_code"):
                    code = getattr(owner, each.name)
                    setattr(owner, each.name, table.get(code, code))

    return apply


def structures(message: Any) -> Iterator[Any]:
    """The message and every structure in it."""
    yield message
    for each in message.FIELDS:
        inner = getattr(message, each.name) if isinstance(each.element, type) else None
        for one in inner if isinstance(inner, list) else [inner] if inner is not None else []:
            yield from structures(one)


def lists(path: str, change: Callable[[list[Any]], Any]) -> Change:
    """Change lists that are not null or empty."""
    *_, name = steps = path.split(".")

    def apply(exchange: Exchange, message: Any) -> None:
        for owner in owners(message, steps):
            if items := getattr(owner, name):
                setattr(owner, name, list(change(items)))

    return apply


def first_missing(path: str) -> Change:
    """Remove the first element of a list."""
    return lists(path, lambda items: items[1:])


def last_missing(path: str) -> Change:
    """Remove the last element of a list that has several."""
    return lists(path, lambda items: items[:-1] if len(items) > 1 else items)


def doubled(path: str) -> Change:
    """Append the first element of a list once more."""
    return lists(path, lambda items: [*items, items[0]])


def turned(path: str) -> Change:
    """Reverse a list."""
    return lists(path, lambda items: items[::-1])


def each(path: str, do: Callable[[Exchange, Any], None]) -> Change:
    """Call `do` with every structure at a path."""

    def apply(exchange: Exchange, message: Any) -> None:
        for one in owners(message, [*path.split("."), ""]):
            do(exchange, one)

    return apply


def shared(path: str) -> Change:
    """Set the largest error code of the elements in all of them."""

    def apply(exchange: Exchange, message: Any) -> None:
        found = [*owners(message, [*path.split("."), ""])]
        for one in found:
            one.error_code = max(other.error_code for other in found)

    return apply


def both(*changes: Change) -> Change:
    """Apply several changes; the first act that one of them returns counts."""

    def apply(exchange: Exchange, message: Any) -> Act | None:
        acts = [change(exchange, message) for change in changes]
        return next((act for act in acts if act), None)

    return apply


def when(holds: Callable[[Exchange, Any], bool], change: Change) -> Change:
    """A change only of exchanges for which the condition on exchange and message holds."""
    return lambda exchange, message: change(exchange, message) if holds(exchange, message) else None


def asks(holds: Callable[[Any], bool], change: Change) -> Change:
    """A change only of responses for whose request the condition holds."""
    return when(lambda exchange, message: bool(exchange.frame) and holds(exchange.request), change)


# ---- acts


def late(delay_s: float) -> Change:
    """Delay the response."""
    return lambda exchange, message: lambda frame: Answer([frame], delay_s=delay_s)


def closed(exchange: Exchange, message: Any) -> Act:
    """Close the connection instead of sending the response."""
    return lambda frame: Answer([], close=True)


def silent(exchange: Exchange, message: Any) -> Act:
    """Drop the response or the request."""
    return lambda frame: Answer([])


def twice(exchange: Exchange, message: Any) -> Act:
    """Send the response twice."""
    return lambda frame: Answer([frame, frame])


def sent_twice(exchange: Exchange, message: Any) -> Act:
    """Forward the request twice; the client gets the first response only."""
    other = struct.pack(">i", exchange.correlation_id ^ 0x4000_0000)
    return lambda frame: Answer([frame, frame[:8] + other + frame[12:]])


def cut(count: int) -> Change:
    """Cut `count` bytes off the end of the frame; its size is adjusted."""
    return lambda exchange, message: lambda frame: Answer([sized(frame[4:-count])])


def extended(data: bytes = b"\x00") -> Change:
    """Append bytes to the frame; its size is adjusted."""
    return lambda exchange, message: lambda frame: Answer([sized(frame[4:] + data)])


def held_back(exchange: Exchange, message: Any) -> Act:
    """Send the response after the connection's next one, if a request is pending."""
    return lambda frame: Answer([frame], hold=True)


def replied(body: Callable[[Exchange, Any], Message]) -> Change:
    """Send this response in place of the broker, and do not forward the request."""

    def apply(exchange: Exchange, message: Any) -> Act:
        exchange.reply(body(exchange, message))
        return lambda frame: Answer([])

    return apply


# ---- records


def sealed(batch: bytes | bytearray) -> bytes:
    """The batch with a correct length and CRC."""
    data = bytearray(batch)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


OFFSETS: dict[str, tuple[int, str]] = {
    "base_offset": (0, ">q"), "leader_epoch": (12, ">i"), "magic": (16, ">b"), "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"), "base_timestamp": (27, ">q"), "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"), "producer_epoch": (51, ">h"), "base_sequence": (53, ">i"), "count": (57, ">i"),
}  # fmt: skip
"""Field of a batch's header -> its position and its format."""


def header(name: str, change: Any, where: Callable[[BatchHeader], bool] = lambda header: True) -> Callable[..., Any]:
    """Set a field in the headers of batches, and correct the CRC."""
    position, form = OFFSETS[name]

    def apply(batches: list[tuple[BatchHeader, bytes]], request: Any = None) -> list[bytes]:
        out = []
        for read, data in batches:
            if where(read):
                copy = bytearray(data)
                (old,) = struct.unpack_from(form, copy, position)
                struct.pack_into(form, copy, position, _changed(change, old))
                data = sealed(copy)
            out.append(data)
        return out

    return apply


def fetched(change: Callable[[list[tuple[BatchHeader, bytes]]], list[bytes]]) -> Change:
    """Change the whole batches of every partition of a Fetch response; a last batch that is cut off is removed."""

    def apply(exchange: Exchange, message: Any) -> None:
        for topic in message.responses:
            for partition in topic.partitions:
                if partition.records:
                    batches = split(bytes(partition.records))
                    partition.records = b"".join(change(batches)) if batches else partition.records

    return apply


def split(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    """The whole batches with their headers; [] if one has another magic than 2."""
    try:
        return [(batch.header, bytes(batch.data)) for batch in read_batches(data)]
    except ValueError:
        return []


def sent(change: Callable[[list[tuple[BatchHeader, bytes]]], list[bytes]]) -> Change:
    """Change the batches of a Produce request, for partitions whose batches can be read."""

    def apply(exchange: Exchange, message: Any) -> None:
        for topic in message.topic_data:
            for partition in topic.partition_data:
                batches = split(bytes(partition.records or b""))
                if batches:
                    partition.records = b"".join(change(batches))

    return apply


def repaired(exchange: Exchange, message: Any) -> None:
    """Correct the CRC of every single batch of magic 2 in a Produce request."""
    for topic in message.topic_data:
        for partition in topic.partition_data:
            data = bytes(partition.records or b"")
            if len(data) > HEADER_BYTES and struct.unpack_from(">i", data, 8)[0] == len(data) - 12 and data[16] == 2:
                partition.records = sealed(data)
