"""The shell's counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Metrics:
    """Counters of one process, from its start."""

    requests: int = 0
    bytes_in: int = 0
    connections_accepted: int = 0
    connections_closed: int = 0
