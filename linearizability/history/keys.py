"""Partitions' names in a history, and the time NEVER; without Arrow and NumPy."""

from __future__ import annotations

import re

NEVER = (1 << 63) - 1
"""The completion time of an operation that never completed."""

_PARTITION_NAME = re.compile(r"(?:(.+)-)?(0|[1-9][0-9]{0,8})")


def split_key(key: str | int) -> tuple[str, int]:
    """A key as topic and partition: `orders-3` is (`orders`, 3), `7` is (``, 7), any other name is (name, -1)."""
    text = str(key)
    match = _PARTITION_NAME.fullmatch(text)
    return (match[1] or "", int(match[2])) if match else (text, -1)


def join_key(topic: str, partition: int) -> str:
    """The inverse of `split_key`, for people."""
    if partition < 0:
        return topic
    return f"{topic}-{partition}" if topic else str(partition)
