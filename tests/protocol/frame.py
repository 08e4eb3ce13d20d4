"""The bytes of a frame whose parts are separate."""

from __future__ import annotations

from collections.abc import Iterable

from reference.protocol.codec import Part


def frame_of(parts: Iterable[Part]) -> bytes:
    """A frame, its size first. No part may be a slice of a file: those are sent unread."""
    frame = bytearray()
    for part in parts:
        assert isinstance(part, bytes | bytearray | memoryview), part
        frame += part
    return bytes(frame)
