"""The common part of generated decoders and encoders: buffers, varints, widths of fields, and lines of code."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Field, FileSlice, Message

M = TypeVar("M", bound=Message)

Part = bytes | bytearray | memoryview | FileSlice

Decoder = Callable[[memoryview, int, int], tuple[Any, int]]

Encoder = Callable[[Any, list[Part]], None]


class CodecError(ValueError):
    """Bytes that are not a message of the expected type, or a message that its version cannot carry."""


@lru_cache(maxsize=4096)
def uuid_of(data: bytes) -> UUID:
    """The id of 16 bytes, cached: messages have the same few topics' again and again."""
    return UUID(bytes=data) if any(data) else NO_UUID


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes. Errors: CodecError when it is longer, IndexError when it is cut off."""
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise CodecError("a varint of more than five bytes")


def write_varint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


ONE_BYTE = [bytes((value,)) for value in range(128)]

FIXED = {
    "bool": ("?", 1), "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2),
    "uint32": ("I", 4), "int32": ("i", 4), "int64": ("q", 8),
    "float64": ("d", 8), "uuid": ("16s", 16),
}  # fmt: skip
"""Fields of fixed width: their letter in a struct format, and their size in bytes."""


def minimum_size(table: type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes that a structure takes on the wire."""
    return sum(_minimum_field_size(field, version, flexible) for field in untagged(table, version)) + flexible


def _minimum_field_size(field: Field, version: int, flexible: bool) -> int:
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct":
        return 1 if version in field.nullable else minimum_size(field.element, version, flexible)
    if flexible and not field.legacy_string:
        return 1
    return 2 if field.kind == "string" else 4


def untagged(table: type[Message], version: int) -> list[Field]:
    return [field for field in table.FIELDS if version in field.versions and version not in field.tagged]


def tagged(table: type[Message], version: int) -> list[Field]:
    return sorted((field for field in table.FIELDS if version in field.tagged), key=lambda field: field.tag)


class Writer:
    """Collects the lines of one generated function and the objects that they name."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"CodecError": CodecError, "uuid_of": uuid_of}
        self.depth = 1
        self.counter = 0

    def line(self, text: str) -> None:
        self.lines.append(" " * self.depth + text)

    def name(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def constant(self, stem: str, value: Any) -> str:
        name = self.name(stem)
        self.scope[name] = value
        return name

    def finish(self, head: str, message: type[Message]) -> Any:
        source = "\n".join([head, *self.lines])
        exec(compile(source, f"<{message.__name__} v{self.version}>", "exec"), self.scope)
        return self.scope["generated"]
