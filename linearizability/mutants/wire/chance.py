"""Rewrites fields of responses, and frames, at random by a seed.

The suite must also handle responses that its authors did not foresee. A response is rewritten with a certain probability, in one
of two ways. Mostly one field of the decoded message, often a list, gets a boundary value, a value next to the old one, or any
value. Otherwise the frame is cut off, has additional bytes or flipped bits, or announces another size.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from linearizability.mutants.wire.proxy import Answer, Exchange, ProxiedConnection, sized
from linearizability.mutants.wire.rewriting import structures
from reference.protocol.codec import CodecError
from reference.protocol.frames import decode_response, encode_response
from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Field, Message

RATES = (0.03, 0.1, 0.3)
"""Probabilities of a rewriting; each seed draws one."""
OF_FIELDS = 0.8
"""The share of rewritings that change a field."""
OF_LISTS = 0.4
"""The share of these that change a list, if there is one: an element is removed, repeated, moved or replaced."""
BITS = {"int8": 8, "int16": 16, "uint16": 16, "uint32": 32, "int32": 32, "int64": 64}


class Chance:
    """A tamper that rewrites answers at random. The same seed and the same exchanges give the same rewritings."""

    rewrites_requests = False

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rate = self.draw.choice(RATES)
        self.spared = self.draw.randrange(0, 20)
        """The number of first responses that are not rewritten."""
        self.done: list[str] = []
        """One line for each rewriting."""

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        return None

    def ended(self, connection: ProxiedConnection) -> bytes | None:
        return None

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        self.spared -= 1
        if self.spared >= 0 or self.draw.random() > self.rate:
            return None
        name = f"{exchange.api} v{exchange.version}"
        changed = self._with_other_field(exchange, frame, name) if self.draw.random() < OF_FIELDS else None
        if changed is None:
            kind, changed = self.draw.choice(
                [
                    ("cut", self._cut),
                    ("extended", self._extended),
                    ("flipped", self._flipped),
                    ("size", self._other_size),
                ]
            )
            self.done.append(f"{name} {kind}")
            changed = changed(frame)
        return Answer([changed])

    # ---- frames

    def _cut(self, frame: bytes) -> bytes:
        return sized(frame[: self.draw.randrange(len(frame))])

    def _extended(self, frame: bytes) -> bytes:
        return sized(frame + self.draw.randbytes(self.draw.randint(1, 20)))

    def _flipped(self, frame: bytes) -> bytes:
        data = bytearray(frame)
        for _ in range(self.draw.randint(1, 4)):
            data[self.draw.randrange(len(data))] ^= 1 << self.draw.randrange(8)
        return sized(bytes(data))

    def _other_size(self, frame: bytes) -> bytes:
        size = self.draw.choice([-1, 0, 1, 3, len(frame) - 1, len(frame) + 1, 1 << 20, (1 << 31) - 1])
        return struct.pack(">i", size) + frame

    # ---- fields

    def _with_other_field(self, exchange: Exchange, frame: bytes, name: str) -> bytes | None:
        """The response with one field changed; None if it cannot be decoded, or not be encoded with the drawn value."""
        try:
            correlation_id, message = decode_response(exchange.key, exchange.version, frame)
            places = [
                (owner, each)
                for owner in structures(message)
                for each in owner.FIELDS
                if exchange.version in each.versions
            ]
            if not places:
                return None
            lists = [(owner, each) for owner, each in places if each.kind == "array" and getattr(owner, each.name)]
            owner, each = self.draw.choice(lists if lists and self.draw.random() < OF_LISTS else places)
            value = self._value(each, getattr(owner, each.name), exchange.version)
            setattr(owner, each.name, value)
            reported = b"".join(encode_response(exchange.key, exchange.version, correlation_id, message))  # type: ignore[arg-type]
        except CodecError:
            return None
        self.done.append(f"{name} {each.name}={str(value)[:40]}")
        return reported

    def _value(self, each: Field, old: Any, version: int) -> Any:
        if version in each.nullable and self.draw.random() < 0.25:
            return None
        if each.kind in BITS:
            return self._number(old, BITS[each.kind], signed=not each.kind.startswith("u"))
        match each.kind:
            case "bool":
                return not old
            case "uuid":
                return self.draw.choice([NO_UUID, UUID(int=self.draw.getrandbits(128))])
            case "string":
                text = old or ""
                return self.draw.choice(["", text + "x", text[:-1], "\udcff", "x" * 2000, "\x00", "kafka"])
            case "bytes" | "records":
                return self._bytes(bytes(old or b""))
            case "array":
                return self._array(list(old or []), version)
            case _:
                return old

    def _number(self, old: int, bits: int, *, signed: bool) -> int:
        lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        anything = self.draw.randint(lowest, highest)
        small = self.draw.randint(0, 130)
        drawn = self.draw.choice([0, 1, -1, 2, lowest, highest, old + 1, old - 1, anything, small])
        return min(max(drawn, lowest), highest)

    def _bytes(self, old: bytes) -> bytes:
        if not old or self.draw.random() < 0.2:
            return self.draw.choice([b"", b"\x00", self.draw.randbytes(self.draw.randint(1, 100))])
        data = bytearray(old)
        data[self.draw.randrange(len(data))] ^= 1 << self.draw.randrange(8)
        return self.draw.choice([bytes(data), old[: self.draw.randrange(len(old))], old + old, old[::-1]])

    def _array(self, old: list[Any], version: int) -> list[Any]:
        if not old:
            return old
        at = self.draw.randrange(len(old))
        before, one, behind = old[:at], old[at], old[at + 1 :]
        other = self._like(one, version)
        return self.draw.choice(
            [
                [],
                before + behind,
                [*old, one],
                old[::-1],
                old * 50,
                [*old, other],
                [other, *old],
                [*before, other, *behind],
            ]
        )

    def _like(self, one: Any, version: int) -> Any:
        """A new element like `one`, with one field changed."""
        if not isinstance(one, Message):
            return one + 1 if isinstance(one, int) else one
        fields = [each for each in one.FIELDS if version in each.versions]
        values = {each.name: getattr(one, each.name) for each in one.FIELDS}
        if fields:
            each = self.draw.choice(fields)
            values[each.name] = self._value(each, values[each.name], version)
        return type(one)(**values)
