"""How many files this process may hold open, and how many partitions that allows."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Sequence
from pathlib import Path

from reference.runtime.configuration import ConfigurationError

LEAST_A_SEGMENT = 3
"""The log and its two indexes are open from the start."""

MOST_A_SEGMENT = 5
"""An index that was read is mapped, and Python's map holds a descriptor of its own."""

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
    if segments * LEAST_A_SEGMENT + SPARE > limit:
        raise ConfigurationError(
            f"{', '.join(map(str, folders))}: {segments} segments, which need {segments * LEAST_A_SEGMENT + SPARE} open files or "
            f"more, and {allowed}: raise the limit (ulimit -Hn, LimitNOFILE)"
        )
    room = max(0, limit - SPARE) // MOST_A_SEGMENT
    reported = (
        f"{allowed}: room for {room} partitions of one segment each ({MOST_A_SEGMENT} files a segment, 1 a connection); "
        f"{segments} segments are here"
    )
    return ("warning" if segments > room * 0.8 else "info"), reported
