"""Records as producers send them and as no producer would."""

import random
from collections.abc import Sequence

from reference.protocol.primitives import Buffer, Offset, TimestampMs
from reference.protocol.records.record import Header, Record

TIME = TimestampMs(1_700_000_000_000)


def record_at(
    offset: int, timestamp: int, key: Buffer | None, value: Buffer | None, headers: tuple[Header, ...] = ()
) -> Record:
    return Record(Offset(offset), TimestampMs(timestamp), key, value, headers)


def random_bytes(chance: random.Random) -> bytes | None:
    kind = chance.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    return chance.randbytes(chance.choice((1, 7, 63, 64, 65, 200, 9000) if kind == 2 else (3, 20)))


def random_headers(chance: random.Random) -> tuple[Header, ...]:
    names = (b"", b"trace", "schlüssel".encode())
    return tuple((chance.choice(names), random_bytes(chance)) for _ in range(chance.randrange(4)))


def random_records(chance: random.Random, base_offset: int = 0, headers: bool = True) -> list[Record]:
    """Up to 200 records with consecutive offsets; some sets have records of equal shape, as most real ones have."""
    count = chance.choice((1, 2, 3, 65, 130, 200))
    twins = chance.random() < 0.5
    size = chance.choice((0, 10, 100))
    time = TIME
    records: list[Record] = []
    for index in range(count):
        time += chance.choice((0, 0, 0, 1, 40, -3, 5000) if chance.random() < 0.3 else (0,))
        if twins:
            record = record_at(base_offset + index, time, b"key", bytes(size))
        else:
            extra = random_headers(chance) if headers else ()
            record = record_at(base_offset + index, time, random_bytes(chance), random_bytes(chance), extra)
        records.append(record)
    return records


def plain(records: Sequence[Record]) -> list[tuple[object, ...]]:
    """Records with bytes instead of views, to compare."""

    def copied(data: Buffer | None) -> bytes | None:
        return None if data is None else bytes(data)

    return [
        (r.offset, r.timestamp, copied(r.key), copied(r.value), tuple((copied(k), copied(v)) for k, v in r.headers))
        for r in records
    ]
