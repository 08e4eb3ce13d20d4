"""How many files this process may hold open, and how many of them are log files.

Any number of partitions can be served: a log file that was not used for longest is closed, and opened again when it is used.
Where there are more segments than files may be open, that costs three system calls now and then.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reference.runtime.configuration import ConfigurationError
from reference.storage.posix_disk import DESCRIPTORS_A_MAP, MOST_OPEN_FILES, MOST_OPEN_MAPS

LEAST_OPEN_FILES = 16
"""Of each disk."""


class Shares(NamedTuple):
    """The most log files and indexes of one disk that are open."""

    files: int
    maps: int


MOST_OPEN = Shares(MOST_OPEN_FILES, MOST_OPEN_MAPS)
"""Where there is no limit."""

SPARE = 64
"""Descriptors for listeners, the event loop, other nodes, and checkpoints that are being written."""


def raise_file_limit() -> int:
    """Raise the soft limit to the hard one (RLIMIT_NOFILE); returns the resulting limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def shares_of(limit: int, disks: int) -> Shares:
    """How many files and maps each disk may hold open. Log files and connections get the same, and indexes at most a quarter."""
    if limit == resource.RLIM_INFINITY:
        return MOST_OPEN
    left = max(0, limit - SPARE) // max(1, disks)
    maps = min(MOST_OPEN_MAPS, left // 4 // DESCRIPTORS_A_MAP)
    return Shares((left - maps * DESCRIPTORS_A_MAP) // 2, maps)


def check_limit(limit: int, folders: Sequence[Path]) -> tuple[str, str]:
    """The log line about the limit and the segments in the folders: a level and a sentence.

    Errors: ConfigurationError where hardly any log file could stay open.
    """
    if limit == resource.RLIM_INFINITY:
        return "info", "any number of open files is allowed"
    shares = shares_of(limit, len(folders))
    if shares.files < LEAST_OPEN_FILES:
        raise ConfigurationError(
            f"{limit} open files are allowed, which is too few: raise the limit (ulimit -Hn, LimitNOFILE)"
        )
    segments = sum(1 for folder in folders for _ in folder.glob("*/*.log"))
    files, maps = shares.files * len(folders), shares.maps * len(folders) * DESCRIPTORS_A_MAP
    reported = (
        f"{limit} open files are allowed: at most {files} for segments and {maps} for indexes, the others for connections; "
        f"{segments} segments are here"
    )
    return ("warning" if segments > files else "info"), reported
