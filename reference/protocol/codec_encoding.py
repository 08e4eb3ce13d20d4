"""Writes functions that encode messages; see `codec`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import itemgetter

from reference.protocol.codec_writer import FIXED, ONE_BYTE, Encoder, Writer, tagged, write_varint
from reference.protocol.schema import Field, Message, default_of


class EncoderWriter(Writer):
    """Writes `generated(m, parts)`, which appends buffers."""

    def compile(self, message: type[Message]) -> Encoder:
        self.scope.update(
            varint=write_varint, one_byte=ONE_BYTE, tail=_write_tags, merge=_write_sorted_tags, join=b"".join
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
        known = tagged(table, self.version)
        if not known:
            self.line(f"add(tail({source}.unknown_tagged_fields)) if {source}.unknown_tagged_fields else add(b'\\x00')")
            return
        tags, outer = self.name("tags"), self.name("outer")
        self.line(f"{tags} = [*{source}.unknown_tagged_fields]")
        for field in known:
            place = f"{source}.{field.name}"
            self.line(f"if {self.differs(place, field)}:")
            self.depth += 1
            if field.kind in FIXED:
                pack = self.constant("pack", struct.Struct(f">{FIXED[field.kind][0]}").pack)
                value = f"{place}.bytes" if field.kind == "uuid" else place
                self.line(f"{tags}.append(({field.tag}, {pack}({value})))")
            else:
                self.line(f"{outer} = add; inner = []; add = inner.append")
                run: list[tuple[str, str]] = []
                self.field(place, field, run)
                self.flush(run)
                self.line(f"add = {outer}; {tags}.append(({field.tag}, join(inner)))")
            self.depth -= 1
        self.line(f"add(merge({tags}) if {tags} else b'\\x00')")


def _write_sorted_tags(tags: list[tuple[int, bytes]]) -> bytes:
    tags.sort(key=itemgetter(0))
    return _write_tags(tags)


def _write_tags(tags: Sequence[tuple[int, bytes]]) -> bytes:
    out = [write_varint(len(tags))]
    for tag, value in tags:
        out += (write_varint(tag), write_varint(len(value)), value)
    return b"".join(out)
