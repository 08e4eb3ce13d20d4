"""Buffers that requests are received into.

All connections share one. A frame that arrives in parts gets its own buffer, which a later frame reuses. A new
buffer for each frame of 250 KB costs pages that the system must clear, and on PyPy a collection of all objects every 70 MB.
"""

SHARED_BYTES = 1024 * 1024

MAX_KEPT = 16
"""The most buffers that are kept."""
MAX_KEPT_BYTES = 1024 * 1024
"""The largest buffer that is kept."""
UNIT_BYTES = 16 * 1024
"""Sizes are multiples of it, so that frames of nearly one size can reuse each other's buffers."""


class FrameBuffers:
    """The buffers of one server."""

    def __init__(self, shared_bytes: int = SHARED_BYTES) -> None:
        self.shared = memoryview(bytearray(shared_bytes))
        """Receives the bytes of any connection, which are handled or copied before the next receive."""
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """A buffer of at least `size` bytes with any content; a reused one has at most twice as many."""
        if size < UNIT_BYTES:
            return memoryview(bytearray(size))
        for i, buffer in enumerate(self._kept):
            if size <= len(buffer) <= 2 * size:
                return memoryview(self._kept.pop(i))
        return memoryview(bytearray(-(-size // UNIT_BYTES) * UNIT_BYTES))

    def give(self, part: memoryview) -> None:
        """Keep the buffer that this is a part of. Nothing may refer to its bytes any more."""
        buffer = part.obj
        if isinstance(buffer, bytearray) and UNIT_BYTES <= len(buffer) <= MAX_KEPT_BYTES:
            self._kept.append(buffer)
            if len(self._kept) > MAX_KEPT:
                del self._kept[0]
