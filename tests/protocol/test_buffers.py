"""Large buffers where a call of the C library writes them."""

from __future__ import annotations

import errno
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from reference.protocol import buffers


class Library:
    """A C library whose `pwrite` fails with these errors, and then writes."""

    def __init__(self, *errors: int) -> None:
        self.errors = [*errors]
        self.errno = 0

    def pwrite(self, descriptor: int, data: bytes, count: int, position: int) -> int:
        if not self.errors:
            return count
        self.errno = self.errors.pop(0)
        return -1

    def cdef(self, text: str) -> None:
        pass

    def dlopen(self, name: None) -> Any:
        return SimpleNamespace(pwrite=self.pwrite)

    def from_buffer(self, data: bytes) -> bytes:
        return data

    memmove = None


def test_a_write_that_a_signal_interrupts_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(errno.EINTR, errno.EINTR, errno.ENOSPC)
    monkeypatch.setitem(sys.modules, "cffi", SimpleNamespace(FFI=lambda: library))
    _, write_at = buffers._by_foreign_function()
    with pytest.raises(OSError, match="No space"):
        write_at(3, b"12345", 0)
    assert write_at(3, b"12345", 0) == 5
