"""How many files this process may hold open, and how many partitions that allows."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Sequence
from pathlib import Path

from reference.runtime.configuration import ConfigurationError
from reference.storage.posix_disk import DESCRIPTORS_A_MAP, MOST_OPEN_MAPS

MAPS_A_SEGMENT = 2
"""A segment's indexes. Its log is open from the start; of the indexes, MOST_OPEN_MAPS of each disk are."""

SPARE = 64
"""Listeners, the event loop, other nodes, checkpoints that are being written."""


def raise_file_limit() -> int:
    """Raise the soft limit to the hard one (RLIMIT_NOFILE); gives what then holds."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def check_limit(limit: int, folders: Sequence[Path]) -> tuple[str, str]:
    """What to log of the limit and the segments that are in the folders: a level and a sentence.

    Errors: ConfigurationError when the segments cannot all be opened: their partitions would fail one by one.
    """
    segments = sum(1 for folder in folders for _ in folder.glob("*/*.log"))
    allowed = f"{limit} open files are allowed"
    if limit == resource.RLIM_INFINITY:
        return "info", "any number of open files is allowed"
    maps = MOST_OPEN_MAPS * len(folders)
    least = segments + min(segments * MAPS_A_SEGMENT, maps) + SPARE
    if least > limit:
        raise ConfigurationError(
            f"{', '.join(map(str, folders))}: {segments} segments, which need {least} open files or "
            f"more, and {allowed}: raise the limit (ulimit -Hn, LimitNOFILE)"
        )
    left, most = max(0, limit - SPARE), MAPS_A_SEGMENT * DESCRIPTORS_A_MAP
    room = max(left // (1 + most), left - maps * DESCRIPTORS_A_MAP)
    reported = (
        f"{allowed}: room for {room} partitions of one segment each (1 file a segment, 1 a connection, at most "
        f"{maps * DESCRIPTORS_A_MAP} for indexes); {segments} segments are here"
    )
    return ("warning" if segments > room * 0.8 else "info"), reported
