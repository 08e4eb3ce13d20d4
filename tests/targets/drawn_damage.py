"""Drawn requests, of which half are damaged on their way, to Apache Kafka and to the reference: both refuse or take the same.

A byte of the body is changed, some are left out or put in, the frame ends early or goes on. Either broker closes the connection,
or it reads something in the request that it answers; then the answers are compared as those of whole requests are.

    python -m tests.targets.drawn_damage 0 10 --requests 500
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from linearizability.targets import open_target
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError, decode_from
from reference.protocol.frames import decode_request, decode_response, encode_request
from tests.targets.drawn_comparison import (
    CONFIG,
    KAFKA,
    NOT_DRAWN,
    REFERENCE,
    Comparison,
    Options,
    asked,
    identity,
    parser,
    plain,
    prepare,
    run,
)
from tests.targets.drawn_fields import Side

LEFT_OUT = NOT_DRAWN | {"UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter", "UpdateFeatures", "DeleteTopics"}
"""APIs by which a damaged request may end a broker, or a topic on which later ones depend."""
CLIENT_ID = "damaged"
ANSWERS_WITHIN_S = 4.0
NO_ANSWER = "no answer"
"""Where Kafka fails in a way that it does not expect, as in a Produce without records, it may never answer."""
BYTES = (0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF)
"""What a byte becomes, most often."""


def header_of(key: int, version: int) -> int:
    """How long the header is, with the frame's size."""
    is_flexible = version in APIS[key].request.FLEXIBLE
    return 4 + 8 + 2 + len(CLIENT_ID) + is_flexible


def damaged(frame: bytes, start: int, chance: Random) -> bytes:
    """The frame with a changed body and the size that it has then."""
    body = bytearray(frame[start:])
    for _ in range(chance.choice([1, 1, 1, 2])):
        at, how, value = chance.random(), chance.randrange(10), chance.choice([*BYTES, chance.randrange(256)])
        place = int(at * len(body))
        if how < 5 and body:
            body[place] = value
        elif how == 5 and body:
            body[place] = (body[place] + chance.choice([-1, 1])) % 256
        elif how == 6:
            del body[place : place + chance.choice([1, 2, 4, 8])]
        elif how == 7:
            body[place:place] = bytes([value]) * chance.choice([1, 2, 4])
        elif how == 8:
            del body[place:]
        else:
            body += bytes([value]) * chance.choice([1, 4, 20])
    whole = frame[4:start] + bytes(body)
    return struct.pack(">i", len(whole)) + whole


def answer_to(address: tuple[str, int], frame: bytes, key: int, version: int, side: Side) -> Any:
    """What comes back on a connection of its own."""
    with socket.create_connection(address, timeout=ANSWERS_WITHIN_S) as connection:
        try:
            connection.sendall(frame)
            (size,) = struct.unpack(">i", _taken(connection, 4))
            return plain(decode_response(key, version, _taken(connection, size))[1], side)
        except TimeoutError:
            return NO_ANSWER
        except ConnectionError:
            return "closed"
        except CodecError as error:
            return str(error)


def _taken(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise ConnectionResetError
        found += part
    return found


def is_taken_by_kafka_alone(frame: bytes) -> bool:
    """Whether a length is below -1, or tagged fields are not in order: the reference refuses both, and Kafka does not look."""
    try:
        _, form, view, position = decode_request(frame[4:])
        decode_from(form.request, int.from_bytes(frame[6:8], "big"), view, position)
    except CodecError as error:
        return any(each in str(error) for each in ("a length of -", " after "))
    return False


def as_kafka_reads(value: Any) -> Any:
    """What Kafka returns: strings that are not UTF-8 have a replacement for each wrong byte, where the reference returns the
    bytes; and mostly no topics of which no partition was named."""
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace")
    if isinstance(value, dict):
        return {name: as_kafka_reads(each) for name, each in value.items()}
    if isinstance(value, list):
        named = (each for each in value if not isinstance(each, dict) or each.get("partitions") != [])
        return sorted(map(as_kafka_reads, named), key=identity)
    return value


def compare(sides: Sequence[Side], seed: int, options: Options) -> list[str]:
    comparison = Comparison(sides, seed, options, LEFT_OUT)
    for side in sides:
        prepare(side)
        side.place("topic", UUID(int=5))
    for number in range(options.requests):
        request = comparison.draw(sides)
        is_damaged, damage = comparison.rng.random() < 0.5, comparison.rng.randrange(1 << 30)
        if request is None:
            continue
        key, version, made = request
        frames: list[bytes] = []
        if is_damaged:
            start = header_of(key, version)
            whole = [encode_request(key, version, 7, CLIENT_ID, each) for each in made]
            if len({*map(len, whole)}) > 1:
                continue
            frames = [damaged(each, start, Random(damage)) for each in whole]
            if any(map(is_taken_by_kafka_alone, frames)):
                continue
            pairs = zip(sides, frames, strict=True)
            answers = [answer_to(side.addresses[0], frame, key, version, side) for side, frame in pairs]
        else:
            answers = [asked(side, each, version) for side, each in zip(sides, made, strict=True)]
        answers = [as_kafka_reads(each) for each in answers]
        if answers[0] == NO_ANSWER:
            continue
        what = "damaged" if is_damaged else "whole"
        comparison.judge(f"{number}: {what}", request, answers, *(each.hex() for each in frames))
    return comparison.found


def compared(folder: Path, seed: int, options: Options) -> list[str]:
    """The same with two brokers that are started for it."""
    with (
        open_target(KAFKA, folder=folder / "kafka", config=CONFIG) as kafka,
        open_target(REFERENCE, folder=folder / "reference", config=CONFIG) as reference,
    ):
        sides = [Side([(node.host, node.port) for node in target.nodes]) for target in (kafka, reference)]
        return compare(sides, seed, options)


if __name__ == "__main__":
    run(compared, parser(__doc__).parse_args())
