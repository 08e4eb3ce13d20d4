"""Writes functions that decode messages; see `codec`."""

from __future__ import annotations

import struct
from typing import Any

from reference.protocol.codec_writer import FIXED, CodecError, Decoder, Writer, minimum_size, read_varint, tagged
from reference.protocol.schema import Field, Message

MAX_EMPTY_ELEMENTS = 1 << 16
"""Limit on the elements of an array whose elements take no bytes, which the bytes left cannot bound."""

MAX_REQUEST_ELEMENTS = 1 << 18
"""Limit on the array elements and tagged fields of one request together.

Kafka checks each array against the bytes that are left, and nothing more: a frame of 100 MiB may name 33 million topics
to one of its many threads. Here one loop serves all clients, and an element costs about 1 us to decode and up to 10 us to
handle. A fetch of 100,000 partitions in as many topics, the largest request that sane clients send, takes 200,000.
Responses have no such limit: their reader has asked for them.
"""

UNLIMITED = 1 << 62


class DecoderWriter(Writer):
    """Writes `generated(view, position, size) -> (message, position)`."""

    def compile(self, message: type[Message]) -> Decoder:
        self.scope.update(new=object.__new__, read_varint=read_varint, read_tags=read_tags, overdrawn=overdrawn)
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
        """Write the check that these elements do not exceed the budget."""
        self.line(f"budget -= {count}")
        self.line("if budget < 0: raise overdrawn()")

    def default(self, place: str, field: Field) -> None:
        if callable(field.default):
            self.line(f"{place} = {self.constant('make', field.default)}()")
        else:
            self.line(f"{place} = {self.constant('default', field.default)}")

    def fixed(self, run: list[tuple[str, Field]]) -> None:
        """Read adjacent fields of fixed width in one `struct` call; fields with only a default may lie between them."""
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

    def varint(self, name: str) -> None:
        """An unsigned varint, of which most have one byte."""
        self.line(f"{name} = view[position]; position += 1")
        self.line(f"if {name} > 127: {name}, position = read_varint(view, position - 1)")

    def length(self, format_: str, compact: bool) -> None:
        """Leaves the announced length in `n`; -1 is null."""
        if compact:
            self.varint("n")
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
        self.line(
            f" {place} = str(view[position:position + n], 'utf-8', 'surrogateescape') if n else ''; position += n"
        )

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
            least = minimum_size(element, self.version, self.flexible)
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
        known = tagged(table, self.version)
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
        self.varint(left)
        self.spend(left)
        self.line(f"while {left} > 0:")
        self.depth += 1
        self.line(f"{left} -= 1; last = {tag}")
        self.varint(tag)
        self.line(f"if {tag} <= last: raise CodecError('tagged field %d after %d' % ({tag}, last))")
        self.varint(end)
        self.line(f"{end} += position")
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


def overdrawn() -> CodecError:
    return CodecError(f"a request of more than {MAX_REQUEST_ELEMENTS} array elements and tagged fields")


def read_tags(
    view: memoryview, position: int, size: int, budget: int
) -> tuple[tuple[tuple[int, bytes], ...], int, int]:
    """Tagged fields of a structure that knows none; the position after them, and what is left of the budget."""
    count, position = read_varint(view, position)
    budget -= count
    if budget < 0:
        raise overdrawn()
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
