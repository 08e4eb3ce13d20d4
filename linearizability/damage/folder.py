"""A data folder in memory, the kinds of its files, and the ways to damage one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from random import Random
from typing import NamedTuple

Folder = dict[str, bytes]
"""Path, relative to the data folder -> content of the file."""

METADATA = "__cluster_metadata"
KINDS: tuple[tuple[str, str], ...] = (
    (r".*\.lock|bootstrap\.checkpoint", ""),
    (r"meta\.properties", "meta.properties"),
    (r"[^/]*-offset-checkpoint|\.kafka_cleanshutdown|segment-checksums", "{name}"),
    (METADATA + r"[^/]*/.*\.checkpoint", "metadata snapshot"),
    (METADATA + r"[^/]*/(.*\.)?([a-z.-]+)", "metadata {ending}"),
    (r"__[^/]*/(.*\.)?([a-z.-]+)", "internal topic's {ending}"),
    (r"[^/]*/(.*\.)?([a-z.-]+)", "{ending}"),
)
"""Pattern of a path -> kind of file; files of the kind "" are not damaged."""


def kind_of(path: str) -> str:
    """The kind of a file; "" for one that is not damaged."""
    name = PurePosixPath(path).name
    ending = name.rpartition(".")[2] if re.match(r"\d{20}", name) else name
    for pattern, kind in KINDS:
        if re.fullmatch(pattern, path):
            return kind.format(name=name, ending="." + ending if ending != name else name)
    return ""


class Damage(NamedTuple):
    """A damaged file, and the way of the damage."""

    path: str
    how: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.how} {self.detail}".rstrip()


Change = tuple[bytes | None, str]
"""A file's new bytes (None: deleted), and a description of the change."""


def _flip(data: bytes, chance: Random) -> Change:
    bit = chance.randrange(8 * len(data))
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed), f"bit {bit % 8} of byte {bit // 8} of {len(data)}"


def _cut(data: bytes, chance: Random) -> Change:
    size = chance.randrange(len(data))
    return data[:size], f"to {size} of {len(data)} bytes"


def _empty(data: bytes, chance: Random) -> Change:
    return b"", f"of {len(data)} bytes"


def _zero(data: bytes, chance: Random) -> Change:
    start = chance.randrange(len(data))
    end = chance.randrange(start, len(data)) + 1
    return data[:start] + bytes(end - start) + data[end:], f"from byte {start} to {end} of {len(data)}"


def _zero_page(data: bytes, chance: Random) -> Change:
    start = chance.randrange(-(-len(data) // SECTOR)) * SECTOR
    end = min(start + SECTOR, len(data))
    return data[:start] + bytes(end - start) + data[end:], f"from byte {start} to {end} of {len(data)}"


def _delete(data: bytes, chance: Random) -> Change:
    return None, ""


SECTOR = 512
ZEROS_DAMAGED = 16
HOWS: Mapping[str, Callable[[bytes, Random], Change]] = {
    "bit flipped": _flip, "cut": _cut, "emptied": _empty, "zeroed": _zero, "sector zeroed": _zero_page, "deleted": _delete,
}  # fmt: skip
SWAPPED = "swapped"
HOW_NAMES = (*HOWS, SWAPPED)


def damage(folder: Folder, path: str, how: str, chance: Random) -> tuple[Folder, Damage] | None:
    """A damaged copy of a folder; None where this damage changes nothing, or has no second file to swap with."""
    damaged = dict(folder)
    if how == SWAPPED:
        others = [each for each in sorted(folder) if kind_of(each) == kind_of(path) and folder[each] != folder[path]]
        if not others:
            return None
        other = chance.choice(others)
        damaged[path], damaged[other] = folder[other], folder[path]
        return damaged, Damage(path, how, f"with {other}")
    if not folder[path]:
        return None if how != "deleted" else ({k: v for k, v in folder.items() if k != path}, Damage(path, how, ""))
    # A preallocated index is mostly zeros: damage only its entries and a few bytes after them.
    used = folder[path][: len(folder[path].rstrip(b"\0")) + ZEROS_DAMAGED]
    changed, detail = HOWS[how](used, chance)
    data = changed + folder[path][len(used) :] if changed is not None and how not in ("cut", "emptied") else changed
    if data == folder[path]:
        return None
    if data is None:
        del damaged[path]
    else:
        damaged[path] = data
    return damaged, Damage(path, how, detail)
