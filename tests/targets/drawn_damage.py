"""Drawn requests, of which half are damaged on their way, to Apache Kafka and to the reference: both refuse or take the same.

A byte of the body is changed, some are left out or put in, the frame ends early or goes on. Either broker closes the connection,
or it reads something in the request that it answers; then the answers are compared as those of whole requests are.

    python -m tests.targets.drawn_damage 0 10 --requests 500
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from linearizability.targets import open_target
from reference.node.release import versions_of
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError, decode_from
from reference.protocol.frames import decode_request, decode_response, encode_request
from reference.protocol.schema import Message
from tests.targets.drawn_fields import Side, drawn
from tests.targets.drawn_requests import (
    CHANGES,
    CONFIG,
    KAFKA,
    NOT_DRAWN,
    OFTEN,
    REFERENCE,
    SETTLES_IN_S,
    _identity,
    asked,
    brief,
    differences,
    plain,
    prepare,
)

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
        return sorted(map(as_kafka_reads, named), key=_identity)
    return value


def compare(sides: Sequence[Side], seed: int, requests: int, settles_in_s: float, show: bool) -> list[str]:
    both = set.intersection(*(set(side.wire.versions()) for side in sides))
    names = [key for key in APIS if key in both and APIS[key].name not in LEFT_OUT]
    often = [key for key in names for _ in range(OFTEN.get(APIS[key].name, 1))]
    rng, found = Random(seed), list[str]()
    for side in sides:
        prepare(side)
        side.place("topic", UUID(int=5))
    for number in range(requests):
        key, name = (chosen := rng.choice(often)), APIS[chosen].name
        lowest, highest = versions_of(key)
        version, state = rng.choice([highest, rng.randint(lowest, highest)]), rng.randrange(1 << 30)
        is_damaged, damage = rng.random() < 0.5, rng.randrange(1 << 30)
        made: list[Message] = [drawn(APIS[key].request, version, side, Random(state), name) for side in sides]
        if is_damaged:
            start = header_of(key, version)
            whole = [encode_request(key, version, 7, CLIENT_ID, each) for each in made]
            if len({*map(len, whole)}) > 1:
                continue
            frames = [damaged(each, start, Random(damage)) for each in whole]
            if any(map(is_taken_by_kafka_alone, frames)):
                continue
            answers = [
                answer_to(side.addresses[0], frame, key, version, side)
                for side, frame in zip(sides, frames, strict=True)
            ]
        else:
            frames = []
            answers = [asked(side, request, version) for side, request in zip(sides, made, strict=True)]
        answers = [as_kafka_reads(each) for each in answers]
        if answers[0] == NO_ANSWER:
            continue
        if name in CHANGES:
            time.sleep(settles_in_s)
        differ = list(differences(name, *answers))
        what = "damaged" if is_damaged else "whole"
        if differ:
            found.append(f"seed {seed}, request {number}: {what} {name} v{version}{''.join(sorted(differ))}"[:1000])
        if show or differ:
            shown = [brief(each) for each in made] + [each.hex() for each in frames]
            print(f"seed {seed}, {number}: {what} {name} v{version}", *shown, *differ[:4], sep="\n    ", flush=True)
        if show:
            print(f"    {answers[0]}")
    return found


def compared(
    folder: Path, seed: int, requests: int, settles_in_s: float = SETTLES_IN_S, show: bool = False
) -> list[str]:
    """The same with two brokers that are started for it."""
    with (
        open_target(KAFKA, folder=folder / "kafka", config=CONFIG) as kafka,
        open_target(REFERENCE, folder=folder / "reference", config=CONFIG) as reference,
    ):
        sides = [Side([(node.host, node.port) for node in target.nodes]) for target in (kafka, reference)]
        return compare(sides, seed, requests, settles_in_s, show)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("end", type=int, help="the seed after the last")
    parser.add_argument("--requests", type=int, default=300, help="of each seed")
    parser.add_argument("--show", action="store_true", help="each request and Kafka's answer")
    options = parser.parse_args()
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.end):
            found += compared(Path(folder) / str(seed), seed, options.requests, show=options.show)
    print(f"{len(found)} answers differ")


if __name__ == "__main__":
    main()
