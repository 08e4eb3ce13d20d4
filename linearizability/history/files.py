"""History files as numbered lines, and what can be wrong with them."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import ValidationError

MAX_LINE_BYTES = 256 << 20
"""A longer line is no event of ours."""
PACKED = 10
"""Estimated ratio of a gzip file's contents to its own bytes. Measured with gzip -6: the native histories of ten hunts are 7.9
to 8.7 times as large as their packed files, single files of them 4.5 to 11.8 times."""
GZIP = b"\x1f\x8b"

MISSING, CLOCK, CONTRACT = "missing", "clock", "contract"

UNREADABLE = (ValueError, KeyError, TypeError, IndexError, OverflowError, AttributeError, RecursionError)
"""The exceptions that parsing raises for a line that is no event."""


@dataclass(frozen=True)
class Defect:
    """Something wrong with the record, not with the broker.

    `kind`: `missing` (facts are gone: a torn, cut or damaged file), `clock` (times cannot be trusted), `contract` (files
    of one run declare different clusters).
    """

    kind: str
    text: str
    file: str = ""
    line: int = 0
    marks: bool = False
    """Whether marks may be missing with it: faults and excuses that explain what clients saw."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return place + self.text


class HistoryError(Exception):
    """A file that is no history at all. Names the file, and the line where there is one."""

    def __init__(self, file: Path | str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}" if line else f"{file}: {text}")
        self.defect = Defect(MISSING, text, str(file), line, marks=True)


class Contradiction(HistoryError):
    """A file declares another contract than the one that is given for it."""


def size_of(path: Path) -> int:
    """The approximate size of a file's lines in bytes, unpacked; 0 where there is no such file."""
    if not path.is_file():
        return 0
    try:
        with path.open("rb") as stream:
            return path.stat().st_size * (PACKED if stream.read(2) == GZIP else 1)
    except OSError:
        return 0


def open_text(path: Path) -> IO[bytes]:
    """A file's bytes, unpacked where they are gzip."""
    stream = path.open("rb")
    if stream.read(2) == GZIP:
        stream.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    stream.seek(0)
    return stream


def numbered_lines(path: Path) -> Generator[tuple[int, bytes, bool], None, None]:
    """Each line's number, bytes and whether it ended with a newline (a torn last line does not)."""
    try:
        opened = open_text(path)
    except OSError as error:
        raise HistoryError(path, 0, error.strerror or str(error)) from error
    with opened as stream:
        number = 0
        while True:
            number += 1
            try:
                line = stream.readline(MAX_LINE_BYTES)
            except (EOFError, OSError, zlib.error) as error:
                raise HistoryError(path, number, f"cannot be read: {error}") from error
            if not line:
                return
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                raise HistoryError(path, number, f"a line of more than {MAX_LINE_BYTES >> 20} MB")
            yield number, line, line.endswith(b"\n")


def reason(error: Exception) -> str:
    """The message of an error, in one line. A place in JSON is one in a line of the file, which is named beside it: left out."""
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return re.sub(r" at line \d+ column \d+$", "", str(error)) or type(error).__name__
