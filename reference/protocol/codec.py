"""Bytes to messages and back.

For each (message class, version) the codec writes one Python function from the fact table and compiles it when it is
first needed (about 2 ms). A generated function is one straight walk over the bytes: neighbouring fields of fixed width
are one `struct` call, one-byte varints are read in place, structures are laid out inside of their parents' loops.

Decoding never copies what can stay a view: bytes and records are `memoryview`s of the buffer that was given. Whatever the
bytes are, decoding ends, in time and memory bounded by their number, with a message or with `CodecError`: each length is
held against the bytes that are left before anything is made from it, and a request, which any client may send and one loop
reads for all of them, has a budget of elements besides. Values that no table knows (error codes, tagged fields, bytes that
are not UTF-8) survive a round trip.

Encoding gives a list of buffers: what stands between two records fields is one, and a records field stays what it was, so
that a slice of a file is sent by the runtime without being read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

from reference.protocol.primitives import NO_UUID, Buffer
from reference.protocol.schema import Field, FileSlice, Message, default_of

M = TypeVar("M", bound=Message)
Part = bytes | bytearray | memoryview | FileSlice
Decoder = Callable[[memoryview, int, int], tuple[Any, int]]
Encoder = Callable[[Any, list[Part]], None]

MAX_EMPTY_ELEMENTS = 1 << 16
"""Limit on the elements of an array whose elements take no bytes, which the bytes left cannot bound."""

MAX_REQUEST_ELEMENTS = 1 << 18
"""Limit on the array elements and tagged fields of one request together.

Kafka holds each array against the bytes that are left, and nothing more: a frame of 100 MiB may name 33 million topics
to one of its many threads. Here one loop serves all clients, and an element costs about 1 us to decode and up to 10 us to
handle. A fetch of 100,000 partitions in as many topics, the largest request that sane clients send, takes 200,000.
Responses have no such limit: their reader has asked for them.
"""

UNLIMITED = 1 << 62


class CodecError(ValueError):
    """Bytes that are not the message they should be, or a message that its version cannot carry."""


def decode(message: type[M], version: int, buffer: Buffer) -> M:
    """Read one message that fills the buffer.

    Errors: CodecError when the bytes are not such a message, are too few, or go on after its end.
    """
    decoded, end = decode_from(message, version, memoryview(buffer), 0)
    if end != len(buffer):
        raise CodecError(f"{message.__name__} v{version}: {len(buffer) - end} bytes after the end")
    return decoded


def decode_from(message: type[M], version: int, view: memoryview, position: int) -> tuple[M, int]:
    """Read one message at a position; gives it and the position after it.

    Errors: CodecError as for `decode`; bytes after the end are the caller's.
    """
    try:
        return (_decoders.get((message, version)) or _decoder(message, version))(view, position, len(view))
    except (struct.error, IndexError) as error:
        raise CodecError(f"{message.__name__} v{version}: ends too early") from error


def encode(message: Message, version: int) -> bytes:
    """Write one message as bytes.

    Errors: CodecError when the version has no place for a value that is set, or a value does not fit its type.
    """
    parts: list[Part] = []
    encode_into(message, version, parts)
    return b"".join(parts)  # type: ignore[arg-type]  # a FileSlice here is a programming error and join says so


def encode_into(message: Message, version: int, parts: list[Part]) -> None:
    """Append one message to a list of buffers; records stay the objects that they are. Errors: as for `encode`."""
    cls = type(message)
    try:
        (_encoders.get((cls, version)) or _encoder(cls, version))(message, parts)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise CodecError(f"{cls.__name__} v{version}: {error}") from error


@lru_cache(maxsize=4096)
def uuid_of(data: bytes) -> UUID:
    """The id of 16 bytes. The same few topics' are read again and again."""
    return UUID(bytes=data) if any(data) else NO_UUID


# ---- varints


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
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(128)]


# ---- compiling


_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}

FIXED = {
    "bool": ("?", 1), "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2),
    "uint32": ("I", 4), "int32": ("i", 4), "int64": ("q", 8),
    "float64": ("d", 8), "uuid": ("16s", 16),
}  # fmt: skip
"""Fields of fixed width: their letter in a struct format, and their size in bytes."""


def _check_version(message: type[Message], version: int) -> None:
    if version not in message.VERSIONS:
        raise CodecError(f"{message.__name__} has no version {version}, but {message.VERSIONS}")


def _decoder(message: type[Message], version: int) -> Decoder:
    _check_version(message, version)
    function = _DecoderWriter(version, version in message.FLEXIBLE).compile(message)
    _decoders[message, version] = function
    return function


def _encoder(message: type[Message], version: int) -> Encoder:
    _check_version(message, version)
    function = _EncoderWriter(version, version in message.FLEXIBLE).compile(message)
    _encoders[message, version] = function
    return function


def _minimum_size(table: type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes that a structure takes on the wire."""
    return sum(_minimum_field_size(field, version, flexible) for field in _untagged(table, version)) + flexible


def _minimum_field_size(field: Field, version: int, flexible: bool) -> int:
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct":
        return 1 if version in field.nullable else _minimum_size(field.element, version, flexible)
    if flexible and not field.legacy_string:
        return 1
    return 2 if field.kind == "string" else 4


def _untagged(table: type[Message], version: int) -> list[Field]:
    return [field for field in table.FIELDS if version in field.versions and version not in field.tagged]


def _tagged(table: type[Message], version: int) -> list[Field]:
    return sorted((field for field in table.FIELDS if version in field.tagged), key=lambda field: field.tag)


class _Writer:
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


class _DecoderWriter(_Writer):
    """Writes `generated(view, position, size) -> (message, position)`."""

    def compile(self, message: type[Message]) -> Decoder:
        self.scope.update(new=object.__new__, read_varint=read_varint, read_tags=_read_tags, overdrawn=_overdrawn)
        self.line(f"budget = {MAX_REQUEST_ELEMENTS if message.KIND == 'request' else UNLIMITED}")
        target = self.structure(message)
        self.line(f"return {target}, position")
        return self.finish("def generated(view, position, size):", message)

    def structure(self, table: type[Message]) -> str:
        target = self.name("m")
        self.line(f"{target} = new({self.constant('Table', table)})")
        run: list[tuple[str, Field]] = []
        for field in table.FIELDS:
            place = f"{target}.{field.name}"
            if self.version not in field.versions or self.version in field.tagged:
                self.default(place, field)
            elif field.kind in FIXED:
                run.append((place, field))
            else:
                self.fixed(run)
                self.field(place, field)
        self.fixed(run)
        if self.flexible:
            self.tags(target, table)
        else:
            self.line(f"{target}.unknown_tagged_fields = ()")
        return target

    def spend(self, count: str) -> None:
        """Take elements from the budget, whose end is the decoding's end."""
        self.line(f"budget -= {count}")
        self.line("if budget < 0: raise overdrawn()")

    def default(self, place: str, field: Field) -> None:
        if callable(field.default):
            self.line(f"{place} = {self.constant('make', field.default)}()")
        else:
            self.line(f"{place} = {self.constant('default', field.default)}")

    def fixed(self, run: list[tuple[str, Field]]) -> None:
        """Neighbouring fields of fixed width in one `struct` call; defaults between them do not part them."""
        if not run:
            return
        format_ = struct.Struct(">" + "".join(FIXED[field.kind][0] for _, field in run))
        places = ", ".join(place for place, _ in run)
        self.line(
            f"{places}{',' if len(run) == 1 else ''} = {self.constant('unpack', format_.unpack_from)}(view, position)"
        )
        for place, field in run:
            if field.kind == "uuid":
                self.line(f"{place} = uuid_of({place})")
        self.line(f"position += {format_.size}")
        run.clear()

    def field(self, place: str, field: Field) -> None:
        if field.kind == "array":
            self.array(place, field)
        elif field.kind == "struct":
            self.struct(place, field)
        elif field.kind == "string":
            self.string(place, self.version in field.nullable, self.flexible and not field.legacy_string, field.name)
        else:
            self.bytes(place, self.version in field.nullable, field.name)

    def struct(self, place: str, field: Field) -> None:
        if self.version not in field.nullable:
            self.line(f"{place} = {self.structure(field.element)}")
            return
        self.line("position += 1")
        self.line("if view[position - 1] != 1:" if self.version in field.tagged else "if view[position - 1] > 127:")
        self.line(f" {place} = None")
        self.line("else:")
        self.depth += 1
        self.line(f"{place} = {self.structure(field.element)}")
        self.depth -= 1

    def length(self, format_: str, compact: bool) -> None:
        """Leaves the announced length in `n`; -1 is null."""
        if compact:
            self.line("n = view[position]; position += 1")
            self.line("if n > 127: n, position = read_varint(view, position - 1)")
            self.line("n -= 1")
        else:
            unpack = self.constant("unpack", struct.Struct(format_).unpack_from)
            self.line(f"n, = {unpack}(view, position); position += {struct.calcsize(format_)}")

    def null_or_refuse(self, place: str, nullable: bool, label: str) -> None:
        """Handles `n < 0`; the lines that follow are the `else` branch."""
        self.line("if n < 0:")
        if nullable:
            self.line(f" if n < -1: raise CodecError('{label}: a length of %d' % n)")
            self.line(f" {place} = None")
        else:
            self.line(f" raise CodecError('{label}: {{}} where it may not be'.format('null' if n == -1 else n))")
        self.line("else:")

    def string(self, place: str, nullable: bool, compact: bool, label: str) -> None:
        self.length(">h", compact)
        self.null_or_refuse(place, nullable, label)
        self.line(
            f" if n > size - position: raise CodecError('{label}: %d bytes, of which %d are there' % (n, size - position))"
        )
        self.line(f" {place} = str(view[position:position + n], 'utf-8', 'surrogateescape'); position += n")

    def bytes(self, place: str, nullable: bool, label: str) -> None:
        self.length(">i", self.flexible)
        self.null_or_refuse(place, nullable, label)
        self.line(
            f" if n > size - position: raise CodecError('{label}: %d bytes, of which %d are there' % (n, size - position))"
        )
        self.line(f" {place} = view[position:position + n]; position += n")

    def array(self, place: str, field: Field) -> None:
        self.length(">i", self.flexible)
        self.null_or_refuse(place, self.version in field.nullable, field.name)
        self.depth += 1
        element = field.element
        if isinstance(element, str):
            least = FIXED[element][1] if element in FIXED else 1
        else:
            least = _minimum_size(element, self.version, self.flexible)
        limit = f"(size - position) // {least}" if least else str(MAX_EMPTY_ELEMENTS)
        self.line(f"if n > {limit}: raise CodecError('{field.name}: %d elements in %d bytes' % (n, size - position))")
        self.spend("n")
        if element in FIXED:
            self.fixed_elements(place, str(element))
        else:
            self.elements(place, element, field.name)
        self.depth -= 1

    def fixed_elements(self, place: str, element: str) -> None:
        letter, width = FIXED[element]
        if element == "uuid":
            self.line(f"{place} = [uuid_of(bytes(view[at:at + 16])) for at in range(position, position + n * 16, 16)]")
        else:
            unpack = self.constant("unpack", struct.unpack_from)
            self.line(f"{place} = list({unpack}('>%d{letter}' % n, view, position))")
        self.line(f"position += n * {width}")

    def elements(self, place: str, element: Any, label: str) -> None:
        items, add = self.name("items"), self.name("add")
        self.line(f"{place} = {items} = []")
        self.line(f"{add} = {items}.append")
        self.line("for _ in range(n):")
        self.depth += 1
        if element == "string":
            self.string("item", False, self.flexible, label)
            self.line(f"{add}(item)")
        elif isinstance(element, str):
            self.bytes("item", False, label)
            self.line(f"{add}(item)")
        else:
            self.line(f"{add}({self.structure(element)})")
        self.depth -= 1

    def tags(self, target: str, table: type[Message]) -> None:
        """The tagged fields at the end of each structure of a flexible version; mostly there are none."""
        known = _tagged(table, self.version)
        self.line("if view[position] == 0:")
        self.line(f" position += 1; {target}.unknown_tagged_fields = ()")
        self.line("else:")
        self.depth += 1
        if not known:
            self.line(f"{target}.unknown_tagged_fields, position, budget = read_tags(view, position, size, budget)")
            self.depth -= 1
            return
        left, end, unknown, tag = self.name("left"), self.name("end"), self.name("unknown"), self.name("tag")
        self.line(f"{unknown} = []; {tag} = -1")
        self.line(f"{left}, position = read_varint(view, position)")
        self.spend(left)
        self.line(f"while {left} > 0:")
        self.depth += 1
        self.line(f"{left} -= 1; last = {tag}")
        self.line(f"{tag}, position = read_varint(view, position)")
        self.line(f"if {tag} <= last: raise CodecError('tagged field %d after %d' % ({tag}, last))")
        self.line(f"{end}, position = read_varint(view, position); {end} += position")
        self.line(f"if {end} > size: raise CodecError('tagged field %d: ends too early' % {tag})")
        word = "if"
        for field in known:
            self.line(f"{word} {tag} == {field.tag}:")
            word = "elif"
            self.depth += 1
            if field.kind in FIXED:
                self.fixed([(f"{target}.{field.name}", field)])
            else:
                self.field(f"{target}.{field.name}", field)
            self.line(f"if position != {end}: raise CodecError('{field.name}: its size and its bytes disagree')")
            self.depth -= 1
        self.line("else:")
        self.line(f" {unknown}.append(({tag}, bytes(view[position:{end}]))); position = {end}")
        self.depth -= 1
        self.line(f"{target}.unknown_tagged_fields = tuple({unknown})")
        self.depth -= 1


def _overdrawn() -> CodecError:
    return CodecError(f"a request of more than {MAX_REQUEST_ELEMENTS} array elements and tagged fields")


def _read_tags(
    view: memoryview, position: int, size: int, budget: int
) -> tuple[tuple[tuple[int, bytes], ...], int, int]:
    """Tagged fields of a structure that knows none; the position after them, and what is left of the budget."""
    count, position = read_varint(view, position)
    budget -= count
    if budget < 0:
        raise _overdrawn()
    tags: list[tuple[int, bytes]] = []
    for _ in range(count):
        tag, position = read_varint(view, position)
        length, position = read_varint(view, position)
        if tags and tag <= tags[-1][0]:
            raise CodecError(f"tagged field {tag} after {tags[-1][0]}")
        if length > size - position:
            raise CodecError(f"tagged field {tag}: {length} bytes, of which {size - position} are there")
        tags.append((tag, bytes(view[position : position + length])))
        position += length
    return tuple(tags), position, budget


class _EncoderWriter(_Writer):
    """Writes `generated(m, parts)`, which appends buffers."""

    def compile(self, message: type[Message]) -> Encoder:
        self.scope.update(
            varint=write_varint, one_byte=_ONE_BYTE, tail=_write_unknown_tags, merge=_write_tags, join=b"".join
        )
        self.line("out = []; add = out.append")
        self.structure("m", message)
        self.line("if out: parts.append(join(out))")
        return self.finish("def generated(m, parts):", message)

    def structure(self, source: str, table: type[Message]) -> None:
        run: list[tuple[str, str]] = []
        for field in table.FIELDS:
            place = f"{source}.{field.name}"
            if self.version not in field.versions:
                if not field.ignorable:
                    self.refuse(place, field)
            elif self.version in field.tagged:
                continue
            elif field.kind in FIXED:
                run.append((FIXED[field.kind][0], f"{place}.bytes" if field.kind == "uuid" else place))
            else:
                self.field(place, field, run)
        self.flush(run)
        if self.flexible:
            self.tags(source, table)

    def differs(self, place: str, field: Field) -> str:
        """The condition that a value is not its field's default; a structure's fields are compared one by one."""
        default = default_of(field)
        if not isinstance(default, Message):
            return f"{place} != {self.constant('default', default)}"
        if self.version in field.nullable:
            return f"({place} is None or {self.differs_in_fields(place, type(default))})"
        return self.differs_in_fields(place, type(default))

    def differs_in_fields(self, place: str, table: type[Message]) -> str:
        conditions = [self.differs(f"{place}.{field.name}", field) for field in table.FIELDS]
        return " or ".join([*conditions, f"{place}.unknown_tagged_fields"])

    def refuse(self, place: str, field: Field) -> None:
        """A value that this version cannot carry is an error unless the schema calls it ignorable or it is the default."""
        self.line(f"if {self.differs(place, field)}: raise CodecError('{field.name} is not in version {self.version}')")

    def flush(self, run: list[tuple[str, str]]) -> None:
        if run:
            pack = self.constant("pack", struct.Struct(">" + "".join(letter for letter, _ in run)).pack)
            self.line(f"add({pack}({', '.join(value for _, value in run)}))")
            run.clear()

    def field(self, place: str, field: Field, run: list[tuple[str, str]]) -> None:
        nullable = self.version in field.nullable
        if field.kind == "array":
            self.flush(run)
            self.array(place, field, nullable)
        elif field.kind == "struct":
            self.flush(run)
            self.struct(place, field, nullable)
        elif field.kind == "string":
            self.string(place, nullable, self.flexible and not field.legacy_string, run)
        else:
            self.flush(run)
            self.bytes(place, nullable, field.kind == "records")

    def struct(self, place: str, field: Field, nullable: bool) -> None:
        inner = self.name("s")
        self.line(f"{inner} = {place}")
        if not nullable:
            self.structure(inner, field.element)
            return
        null = b"\x00" if self.version in field.tagged else b"\xff"  # Kafka's serializers distinguish the two places
        self.line(f"if {inner} is None:")
        self.line(f" add({null!r})")
        self.line("else:")
        self.depth += 1
        self.line("add(b'\\x01')")
        self.structure(inner, field.element)
        self.depth -= 1

    def string(self, place: str, nullable: bool, compact: bool, run: list[tuple[str, str]]) -> None:
        self.flush(run)
        if nullable:
            null = b"\x00" if compact else b"\xff\xff"
            self.line(f"if {place} is None: add({null!r})")
            self.line("else:")
            self.depth += 1
        self.line(f"b = {place}.encode('utf-8', 'surrogateescape')")
        self.line("n = len(b)")
        self.line("if n > 32767: raise CodecError('a string of %d bytes' % n)")
        self.length(">h", compact)
        self.line("add(b)")
        if nullable:
            self.depth -= 1

    def length(self, format_: str, compact: bool) -> None:
        """Writes the length in `n`."""
        if compact:
            self.line("add(one_byte[n + 1] if n < 127 else varint(n + 1))")
        else:
            self.line(f"add({self.constant('pack', struct.Struct(format_).pack)}(n))")

    def bytes(self, place: str, nullable: bool, is_records: bool) -> None:
        null = b"\x00" if self.flexible else b"\xff\xff\xff\xff"
        self.line(f"b = {place}")
        if nullable:
            self.line(f"if b is None: add({null!r})")
            self.line("else:")
            self.depth += 1
        else:
            self.line("if b is None: b = b''")
        self.line("n = len(b)")
        self.length(">i", self.flexible)
        if is_records:
            self.line("if n: parts.append(join(out)); parts.append(b); out.clear()")
        else:
            self.line("add(b)")
        if nullable:
            self.depth -= 1

    def array(self, place: str, field: Field, nullable: bool) -> None:
        items = self.name("items")
        self.line(f"{items} = {place}")
        if nullable:
            null = b"\x00" if self.flexible else b"\xff\xff\xff\xff"
            self.line(f"if {items} is None: add({null!r})")
            self.line("else:")
            self.depth += 1
        self.line(f"n = len({items})")
        self.length(">i", self.flexible)
        element = field.element
        if element in FIXED and element != "uuid":
            pack = self.constant("pack", struct.pack)
            self.line(f"add({pack}('>%d{FIXED[str(element)][0]}' % len({items}), *{items}))")
        else:
            item = self.name("item")
            self.line(f"for {item} in {items}:")
            self.depth += 1
            if element == "uuid":
                self.line(f"add({item}.bytes)")
            elif element == "string":
                self.string(item, False, self.flexible, [])
            elif isinstance(element, str):
                self.bytes(item, False, is_records=False)
            else:
                self.structure(item, element)
            self.depth -= 1
        if nullable:
            self.depth -= 1

    def tags(self, source: str, table: type[Message]) -> None:
        """Tagged fields are written only where they differ from their default, in the order of their tags."""
        known = _tagged(table, self.version)
        if not known:
            self.line(f"add(tail({source}.unknown_tagged_fields)) if {source}.unknown_tagged_fields else add(b'\\x00')")
            return
        tags, outer = self.name("tags"), self.name("outer")
        self.line(
            f"{tags} = [(t, [b]) for t, b in {source}.unknown_tagged_fields] if {source}.unknown_tagged_fields else []"
        )
        for field in known:
            self.line(f"if {self.differs(f'{source}.{field.name}', field)}:")
            self.depth += 1
            self.line(f"{outer} = add; inner = []; {tags}.append(({field.tag}, inner)); add = inner.append")
            run: list[tuple[str, str]] = []
            if field.kind in FIXED:
                place = f"{source}.{field.name}"
                run.append((FIXED[field.kind][0], f"{place}.bytes" if field.kind == "uuid" else place))
            else:
                self.field(f"{source}.{field.name}", field, run)
            self.flush(run)
            self.line(f"add = {outer}")
            self.depth -= 1
        self.line(f"merge({tags}, add) if {tags} else add(b'\\x00')")


def _write_unknown_tags(tags: tuple[tuple[int, bytes], ...]) -> bytes:
    out = [write_varint(len(tags))]
    for tag, value in tags:
        out += [write_varint(tag), write_varint(len(value)), value]
    return b"".join(out)


def _write_tags(tags: list[tuple[int, list[Part]]], add: Callable[[Part], None]) -> None:
    tags.sort(key=lambda tag: tag[0])
    add(write_varint(len(tags)))
    for tag, parts in tags:
        add(write_varint(tag))
        add(write_varint(sum(len(part) for part in parts)))
        for part in parts:
            add(part)
