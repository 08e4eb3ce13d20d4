"""Damages of the files beside the logs: lines and texts of checkpoints, notes and indexes, and files of another moment.

The campaign flips bits of the log files themselves (`tidegauge bench damage`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from linearizability.damage.folder import HOW_NAMES, Folder, damage, kind_of
from reference.protocol.primitives import NO_UUID
from reference.storage.checkpoints import CLEAN_SHUTDOWN, PARTITION_METADATA, text_of_uuid
from reference.storage.segment import LOG_SUFFIX
from reference.storage.segment_checksums import SEGMENT_CHECKSUMS

Lines = list[str]

CHECKPOINTS = "-offset-checkpoint", "leader-epoch-checkpoint"
MOST_TRIES = 200


def _with_number(lines: Lines, chance: random.Random, numbers: tuple[int, ...]) -> Lines:
    """One line with another offset."""
    if not lines:
        return lines
    at = chance.randrange(len(lines))
    *words, last = lines[at].split(" ")
    changed = " ".join([*words, str(int(last) + chance.choice(numbers))])
    return [*lines[:at], changed, *lines[at + 1 :]]


def _replaced(lines: Lines, chance: random.Random, last: str) -> Lines:
    if not lines:
        return lines
    at = chance.randrange(len(lines))
    return [*lines[:at], " ".join([*lines[at].split(" ")[:-1], last]), *lines[at + 1 :]]


def _doubled(lines: Lines, chance: random.Random) -> Lines:
    """One line doubled, sometimes with two offsets."""
    if not lines:
        return lines
    line = chance.choice(lines)
    second = _with_number([line], chance, (0, -1, 1, 3, -3, 1000))
    return chance.choice([[*second, *lines], [*lines, *second]])


def _missing(lines: Lines, chance: random.Random) -> Lines:
    at = chance.randrange(len(lines)) if lines else 0
    return lines[:at] + lines[at + 1 :]


def _exchanged(lines: Lines, chance: random.Random) -> Lines:
    """Each line has the number of another one."""
    numbers = [line.split(" ")[-1] for line in lines]
    chance.shuffle(numbers)
    return [" ".join([*line.split(" ")[:-1], number]) for line, number in zip(lines, numbers, strict=True)]


def _shuffled(lines: Lines, chance: random.Random) -> Lines:
    return chance.sample(lines, len(lines))


LINES: Mapping[str, Callable[[Lines, random.Random], Lines]] = {
    "a line twice": _doubled,
    "a line less": _missing,
    "numbers exchanged": _exchanged,
    "lines in another order": _shuffled,
    "a number a little higher": lambda lines, chance: _with_number(lines, chance, (1, 2, 3, 5)),
    "a number a little lower": lambda lines, chance: _with_number(lines, chance, (-1, -2, -3, -5)),
    "a number beyond the log": lambda lines, chance: _with_number(lines, chance, (1_000, 1 << 40)),
    "a negative number": lambda lines, chance: _replaced(lines, chance, chance.choice(["-1", "-7"])),
    "zero": lambda lines, chance: _replaced(lines, chance, "0"),
    "a number of more than 64 bits": lambda lines, chance: _replaced(lines, chance, str(1 << 70)),
    "a word for a number": lambda lines, chance: _replaced(lines, chance, chance.choice(["x", "1_0", "+3", ""])),
}
"""Damages after which the lines are counted again."""

TEXTS: Mapping[str, Callable[[str], str]] = {
    "another version": lambda text: text.replace("0", "1", 1),
    "a wrong count": lambda text: "\n".join(["0", "99", *text.split("\n")[2:]]),
    "no end of the last line": lambda text: text.rstrip("\n"),
    "an empty line at the end": lambda text: text + "\n",
    "two spaces": lambda text: text.replace(" ", "  "),
    "tabs": lambda text: text.replace(" ", "\t"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "one line": lambda text: "0\n",
    "garbage": lambda text: "garbage\x00\x01",
}
METADATA: Mapping[str, Callable[[str], str]] = {
    "an unknown topic": lambda text: text.split("topic_id")[0] + f"topic_id: {'B' * 21}A",
    "no topic": lambda text: text.split("topic_id")[0] + f"topic_id: {text_of_uuid(NO_UUID)}",
    "without an id": lambda text: text.split("topic_id")[0],
    "another version": lambda text: text.replace("version: 0", "version: 1"),
    "garbage": lambda text: "garbage\x00\x01",
}


def _damaged_lines(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    how = chance.choice([*LINES, *TEXTS])
    if how in TEXTS:
        return TEXTS[how](data.decode()).encode(), how
    lines = LINES[how](data.decode().splitlines()[2:], chance)
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode(), how


def draw(folder: Folder, other: Folder, chance: random.Random) -> tuple[Folder, str]:
    """A damaged copy of a folder, and a description of the damage; `other` is the same directory at another moment."""
    for _ in range(MOST_TRIES):
        kinds = sorted({kind for path in folder if (kind := kind_of(path)) and path != SEGMENT_CHECKSUMS})
        kind = chance.choice([*kinds, CLEAN_SHUTDOWN])
        paths = sorted(path for path in folder if kind_of(path) == kind)
        found = _draw(folder, other, kind, paths, chance)
        if found is not None and found[0] != folder:
            return found
    raise AssertionError("nothing in this folder can be damaged")


def _draw(
    folder: Folder, other: Folder, kind: str, paths: list[str], chance: random.Random
) -> tuple[Folder, str] | None:
    if kind == CLEAN_SHUTDOWN:
        if paths and chance.random() < 0.5:
            return {path: data for path, data in folder.items() if path != CLEAN_SHUTDOWN}, f"{CLEAN_SHUTDOWN}: deleted"
        text = chance.choice([b'{"version": 0, "brokerEpoch": 7}', b"", b"garbage", b'{"version": 1}'])
        return folder | {CLEAN_SHUTDOWN: text}, f"{CLEAN_SHUTDOWN}: {text!r}"
    path = chance.choice(paths)
    name = PurePosixPath(path).name
    drawn = chance.random()
    if drawn < 0.3 or kind == LOG_SUFFIX:
        scope = chance.choice(["file", "kind", "folder"])
        chosen = [each for each in {*folder, *other} if _is_in(scope, each, path)]
        mixed = {each: data for each, data in folder.items() if each not in chosen}
        mixed |= {each: other[each] for each in chosen if each in other}
        return mixed, f"{path}: {scope} of another moment"
    if drawn < 0.7 and name.endswith(CHECKPOINTS) and folder[path]:
        data, how = _damaged_lines(folder[path], chance)
        return folder | {path: data}, f"{path}: {how}"
    if drawn < 0.7 and name == PARTITION_METADATA:
        how = chance.choice([*METADATA])
        return folder | {path: METADATA[how](folder[path].decode()).encode()}, f"{path}: {how}"
    found = damage(folder, path, chance.choice(HOW_NAMES), chance)
    return (found[0], str(found[1])) if found is not None else None


def _is_in(scope: str, path: str, chosen: str) -> bool:
    """Whether a file is the chosen one, or of its kind in the same folder, or anything in the same folder."""
    if scope == "file" or path == chosen:
        return path == chosen
    if PurePosixPath(path).parent != PurePosixPath(chosen).parent or path == SEGMENT_CHECKSUMS:
        return False
    return scope == "folder" or kind_of(path) == kind_of(chosen)
