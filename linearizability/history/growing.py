"""Reads a history while it is recorded: each look returns the whole lines since the last one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from linearizability.history.files import open_text
from linearizability.history.native import history_files
from linearizability.history.recorder import LISTED
from linearizability.history.topic import HistoryTopic, read_stretch, stretches


class GrowingFolder:
    """The files of a folder; each look reads on from the position of the last one."""

    in_order = True
    """A line is in its file when it is recorded: the next look has all lines up to this look's time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, int] = {}

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """The new lines, each with the name of its file. Errors: OSError."""
        for path in history_files(self.folder):
            with open_text(path) as stream:
                stream.seek(self._read.get(path, 0))
                for line in stream:
                    if not line.endswith(b"\n"):
                        break  # it is being written
                    self._read[path] = self._read.get(path, 0) + len(line)
                    yield path.name, line


class GrowingTopic:
    """The lines of a history topic; each look reads on from the position of the last one."""

    in_order = False
    """A file may be sent after another one of the same time."""

    def __init__(self, text: str) -> None:
        """Errors: ValueError for a text that names no topic."""
        self.topic = HistoryTopic.parse(text)
        self._read: dict[int, int] = {}

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """The new lines, each with its key (RUN/FILE). Errors: TopicError."""
        for stretch in stretches(self.topic):
            start = max(stretch.start, self._read.get(stretch.partition, stretch.start))
            for offset, key, line in read_stretch(self.topic, replace(stretch, start=start)):
                self._read[stretch.partition] = offset + 1
                if not key.endswith(f"/{LISTED}"):
                    yield key, line
