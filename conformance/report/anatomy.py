"""Splits a request or response into its fields, with the bytes of each, for the HTML report.

It walks the message's table by itself and does not use the codec: it needs positions, must continue where the codec would
refuse, and must stop inside truncated bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from conformance.batches import CONTROL, FIELDS, HEADER, HEADER_BYTES, LENGTH_FROM
from conformance.results import RecordedExchange
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.schema import Field, Message

MAX_ROWS = 400
"""Limit on the rows of one message; the rest is one row."""

FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d", "uuid": "16s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One field: its nesting depth, its name, its value as text, and the positions of its bytes."""

    depth: int
    name: str
    value: str
    start: int
    end: int


class _Ends(Exception):
    """The bytes end here, or cannot be decoded."""


def of_request(exchange: RecordedExchange) -> list[Row]:
    """The rows of a request with its size field and header; raw bytes have a row for the size only."""
    data = bytes.fromhex(exchange.request_hex)
    walker = _Walker(data, exchange.request_bytes)
    if exchange.api_key not in APIS:
        return walker.rows_of(lambda: walker.fixed(0, "size", "int32"))
    table = APIS[exchange.api_key].request

    def read() -> None:
        walker.fixed(0, "size", "int32")
        walker.fixed(0, "request_api_key", "int16", note=exchange.api)
        walker.fixed(0, "request_api_version", "int16")
        walker.fixed(0, "correlation_id", "int32")
        walker.string(0, "client_id", compact=False)
        if exchange.version in table.FLEXIBLE:
            walker.tags(0, (), exchange.version)
        walker.table(0, table, exchange.version)

    return walker.rows_of(read)


def of_response(exchange: RecordedExchange) -> list[Row]:
    """The rows of a response with its size field and header."""
    data = bytes.fromhex(exchange.response_hex)
    walker = _Walker(data, exchange.response_bytes)
    if exchange.api_key not in APIS:
        return walker.rows_of(lambda: walker.fixed(0, "size", "int32"))
    table = APIS[exchange.api_key].response

    def read() -> None:
        walker.fixed(0, "size", "int32")
        walker.fixed(0, "correlation_id", "int32")
        if exchange.response_version in table.FLEXIBLE and exchange.api != "ApiVersions":
            walker.tags(0, (), exchange.response_version)
        walker.table(0, table, exchange.response_version)

    return walker.rows_of(read)


class _Walker:
    """A position in the bytes, and the rows so far."""

    def __init__(self, data: bytes, whole: int) -> None:
        self.data = data
        self.whole = whole
        self.at = 0
        self.rows: list[Row] = []

    def rows_of(self, read: Any) -> list[Row]:
        """Run `read`, and add a last row where it did not reach the end of the bytes."""
        if not self.data:
            return []
        try:
            read()
        except _Ends as end:
            self.rows.append(Row(0, "…", str(end), self.at, len(self.data)))
        else:
            if self.at < len(self.data):
                self.rows.append(Row(0, "…", f"{len(self.data) - self.at} more bytes", self.at, len(self.data)))
        return self.rows

    def row(self, depth: int, name: str, value: str, start: int) -> None:
        if len(self.rows) >= MAX_ROWS:
            raise _Ends("and more fields")
        self.rows.append(Row(depth, name, value, start, self.at))

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            cut = (
                "cut off here: the report keeps no more bytes" if self.whole > len(self.data) else "the bytes end here"
            )
            raise _Ends(cut)
        self.at += count
        return self.data[self.at - count : self.at]

    # ---- values

    def fixed(self, depth: int, name: str, kind: str, note: str = "") -> Any:
        start = self.at
        letter = FIXED[kind]
        (value,) = struct.unpack(f">{letter}", self.take(struct.calcsize(f">{letter}")))
        if kind == "uuid":
            value = UUID(bytes=value)
        text = str(value)
        if name == "error_code":
            note = ErrorCode(value).name if value in ErrorCode.__members__.values() else "not an error code of Kafka"
        self.row(depth, name, f"{text}  {note}".rstrip(), start)
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise _Ends("a varint of more than five bytes")

    def length(self, *, compact: bool, letter: str) -> int:
        """Read a length field; -1 is null."""
        if compact:
            return self.varint() - 1
        return struct.unpack(f">{letter}", self.take(struct.calcsize(f">{letter}")))[0]

    def string(self, depth: int, name: str, *, compact: bool) -> None:
        start = self.at
        size = self.length(compact=compact, letter="h")
        text = "null" if size < 0 else repr(self.take(size).decode("utf-8", "replace"))
        self.row(depth, name, text, start)

    def bytes(self, depth: int, name: str, *, compact: bool, records: bool) -> None:
        start = self.at
        size = self.length(compact=compact, letter="i")
        if size < 0:
            self.row(depth, name, "null", start)
            return
        if not records:
            self.take(size)
            self.row(depth, name, f"{size} bytes", start)
            return
        self.row(depth, name, f"{size} bytes of records", start)
        self.batches(depth + 1, self.at + size)

    def batches(self, depth: int, end: int) -> None:
        """Add rows for the record batches up to a position: the header's fields, and one row for all records of a batch."""
        while self.at + HEADER_BYTES <= min(end, len(self.data)):
            start = self.at
            held = dict(zip(FIELDS, HEADER.unpack_from(self.data, start), strict=True))
            self.row(depth, "batch", f"offsets {held['base_offset']}.., {held['count']} records", start)
            for name, letter in zip(FIELDS, "qiibIhiqqqhii", strict=True):
                place = self.at
                self.take(struct.calcsize(f">{letter}"))
                note = "  (control)" if name == "attributes" and held["attributes"] & CONTROL else ""
                self.row(depth + 1, name, f"{held[name]:#010x}" if name == "crc" else f"{held[name]}{note}", place)
            place = self.at
            payload = start + LENGTH_FROM + held["length"] - self.at
            if held["magic"] != 2 or payload < 0 or self.at + payload > end:
                break
            self.take(payload)
            self.row(depth + 1, "records", f"{payload} bytes", place)
        if self.at < end:
            place = self.at
            self.take(end - self.at)
            self.row(depth, "bytes", f"{end - place} bytes that are no whole batch", place)

    # ---- structure

    def table(self, depth: int, table: type[Message], version: int) -> None:
        flexible = version in table.FLEXIBLE or self._flexible
        outer, self._flexible = self._flexible, flexible
        for one in table.FIELDS:
            if version in one.versions and version not in one.tagged:
                self.field(depth, one, version)
        if flexible:
            self.tags(depth, table.FIELDS, version)
        self._flexible = outer

    _flexible = False

    def field(self, depth: int, one: Field, version: int) -> None:
        compact = self._flexible and not one.legacy_string
        if one.kind in FIXED:
            self.fixed(depth, one.name, one.kind)
        elif one.kind == "string":
            self.string(depth, one.name, compact=compact)
        elif one.kind in ("bytes", "records"):
            self.bytes(depth, one.name, compact=compact, records=one.kind == "records")
        elif one.kind == "struct":
            self.struct(depth, one, version)
        else:
            self.array(depth, one, version)

    def struct(self, depth: int, one: Field, version: int) -> None:
        start = self.at
        if version in one.nullable and self.take(1)[0] > 127:
            self.row(depth, one.name, "null", start)
            return
        self.row(depth, one.name, "", start)
        self.table(depth + 1, one.element, version)

    def array(self, depth: int, one: Field, version: int) -> None:
        start = self.at
        count = self.length(compact=self._flexible, letter="i")
        if count < 0:
            self.row(depth, one.name, "null", start)
            return
        self.row(depth, one.name, f"{count} of them" if count else "none", start)
        if count > len(self.data):
            raise _Ends(f"{one.name} announces {count} elements")
        for number in range(count):
            self.element(depth + 1, one, number, version)

    def element(self, depth: int, one: Field, number: int, version: int) -> None:
        label = f"[{number}]"
        if not isinstance(one.element, str):
            place = len(self.rows)
            start = self.at
            self.row(depth, label, "", start)
            self.table(depth + 1, one.element, version)
            self.rows[place] = Row(depth, label, "", start, self.at)
        elif one.element in FIXED:
            self.fixed(depth, label, one.element)
        elif one.element == "string":
            self.string(depth, label, compact=self._flexible)
        else:
            self.bytes(depth, label, compact=self._flexible, records=one.element == "records")

    def tags(self, depth: int, fields: tuple[Field, ...], version: int) -> None:
        start = self.at
        count = self.varint()
        if not count:
            self.row(depth, "tagged fields", "none", start)
            return
        self.row(depth, "tagged fields", f"{count} of them", start)
        known = {one.tag: one for one in fields if version in one.tagged}
        for _ in range(count):
            start = self.at
            tag, size = self.varint(), self.varint()
            if tag in known:
                self.field(depth + 1, known[tag], version)
            else:
                self.take(size)
                self.row(depth + 1, f"tag {tag}", f"{size} bytes, not known", start)
