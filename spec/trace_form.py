"""What all traces have in common: rows of JSON, and what is said of a file that holds none."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]


class TraceError(ValueError):
    """The file is no trace; the message names line and reason."""
