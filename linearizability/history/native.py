"""The native form: what `recorder` writes, one file a process. Lines are numbered, so a missing, doubled or reordered one
shows.

Reading stops at the first line of a file that cannot be right. The lines before remain evidence: an anomaly that rests on
*present* events is still one. An anomaly that rests on *missing* events is no longer proven, and no verdict is "valid" any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic_core import from_json

from linearizability.history.contract import NOTHING_GIVEN, Contract
from linearizability.history.derivation import Derivation
from linearizability.history.event_fields import BadEvent, process_of
from linearizability.history.facts import FactsBuilder
from linearizability.history.files import (
    CLOCK,
    MISSING,
    UNREADABLE,
    Contradiction,
    Defect,
    HistoryError,
    numbered_lines,
    reason,
)
from linearizability.history.operations import INVOKE
from linearizability.history.recorder import FILE_PATTERN, FORMAT, LISTED
from linearizability.history.streams import ROWS_A_BATCH, FileSummary, History, agreed, finish, history_of, risen


def history_files(folder: Path) -> list[Path]:
    """A run's files: those in the folder, or in its `history` folder (a result folder)."""
    for home in (folder, folder / "history"):
        files = sorted([*home.glob(FILE_PATTERN), *home.glob(FILE_PATTERN + ".gz")])
        if files:
            return files
    return []


def folder_name(file: Path) -> str:
    """The name of a run whose files declare none: its folder's, so that runs in several folders have several names."""
    home = file.absolute().parent
    return (home.parent if home.name == "history" else home).name or file.stem


class NativeFile:
    """One process file, read once: iterate for record batches; `summary` is complete when the iteration ends."""

    def __init__(self, path: Path, run: str = "", given: Contract = NOTHING_GIVEN) -> None:
        self.path = path
        self._lines = numbered_lines(path)
        self.summary = FileSummary(str(path), run)
        self._header(given)
        self._builder = FactsBuilder(run or self.summary.run)
        self._derivation = Derivation(self._builder, self.summary.contract, self.summary.process << 32)
        self._last_time: int | None = None
        self._last_number = -1
        self._begun: dict[int, int] = {}

    def _header(self, given: Contract) -> None:
        for number, line, whole in self._lines:
            try:
                header = from_json(line)
                if not whole or header["type"] != "header" or header["format"] != FORMAT:
                    raise ValueError(f"not the header of a {FORMAT} file")
                self.summary.run = self.summary.run or str(header.get("run") or "")
                self.summary.process = process_of(header["process"])
                self.summary.listed = header.get("listed") is True
                declared = Contract.from_json(header.get("contract"))
            except (ValueError, KeyError, TypeError) as error:
                raise HistoryError(self.path, number, reason(error)) from error
            self.summary.contract = agreed(declared, given, self.path, number)
            return
        raise HistoryError(self.path, 1, "the file is empty")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        complete = False
        expected = 1
        number = 1
        try:
            for number, line, whole in self._lines:
                if complete:
                    raise BadEvent("lines follow the end of the history")
                if not whole:
                    raise BadEvent("the last line is torn")
                event = from_json(line)
                if not isinstance(event, dict):
                    raise BadEvent("not an event")
                if event.get("n") != expected:
                    raise BadEvent(
                        f"line number {event.get('n')} where {expected} must be: lines are missing or doubled"
                    )
                expected += 1
                complete = self._event(event, number)
                if len(self._builder) >= ROWS_A_BATCH:
                    yield self._builder.take()
        except UNREADABLE as error:
            self.summary.defects.append(Defect(MISSING, reason(error), str(self.path), number))
            complete = False
        except HistoryError as error:
            self.summary.defects.append(error.defect)
            complete = False
        else:
            if not complete:
                text = "the file ends without its closing line: what came after is not known"
                self.summary.defects.append(Defect(MISSING, text, str(self.path), number))
        marks = self._may_lack_marks
        self.summary.defects = [replace(each, marks=marks and each.kind == MISSING) for each in self.summary.defects]
        finish(self._derivation, self._begun, complete, self.summary)
        if len(self._builder):
            yield self._builder.take()

    @property
    def _may_lack_marks(self) -> bool:
        """Whether it has marks, or nothing at all: a file of a client has operations alone."""
        return bool(self.summary.marks) or self._last_number < 0

    def _event(self, event: dict[str, Any], line: int) -> bool:
        kind = event["type"]
        if kind == "end":
            return True
        time = event.get("time")
        if self._last_time is not None and isinstance(time, int) and time < self._last_time:
            text = f"the clock steps back by {self._last_time - time} ns"
            if not any(defect.kind == CLOCK for defect in self.summary.defects):
                self.summary.defects.append(Defect(CLOCK, text, str(self.path), line))
        self._last_time = time
        if kind == "mark":
            self.summary.mark(event)
        elif kind == INVOKE:
            self._last_number = risen(event["operation"], self._last_number)
            self._derivation.invoke(event["operation"], event["process"], event)
            self._begun[event["operation"]] = line
        elif kind in ("ok", "fail", "info"):
            self._derivation.complete(event["operation"], event["process"], event)
            del self._begun[event["operation"]]
        else:
            raise BadEvent(f"{kind!r} is no type of event")
        return False


def read_run(paths: Iterable[Path], given: Contract = NOTHING_GIVEN) -> History:
    """The files of one run as one history in memory. Errors: HistoryError where none of them is a history; Contradiction."""
    chosen, defects = distinct_files(paths, given)
    if not chosen:
        first = defects[0] if defects else Defect(MISSING, "empty", "")
        raise HistoryError(first.file, first.line, first.text)
    streams = [NativeFile(path, "", given) for path in chosen]
    history = history_of(streams[0].summary.run or folder_name(chosen[0]), streams)
    history.defects = [*defects, *history.defects]
    return history


def distinct_files(paths: Iterable[Path], given: Contract = NOTHING_GIVEN) -> tuple[list[Path], list[Defect]]:
    """The files that are histories, one a process, and the defects of the others. Reads headers only.

    Errors: Contradiction: to leave such a file out would hide the contradiction.
    """
    paths = list(paths)
    chosen: dict[int, Path] = {}
    defects: list[Defect] = []
    listed: set[Path] = set()
    for path in paths:
        try:
            summary = NativeFile(path, given=given).summary
        except Contradiction:
            raise
        except HistoryError as error:
            defects.append(error.defect)
            continue
        twin = chosen.setdefault(summary.process, path)
        if summary.listed:
            listed.add(path.parent)
        if twin is not path:
            text = f"process {summary.process} is already in {twin}; this file is left out"
            defects.append(Defect(MISSING, text, str(path), 1, marks=True))
    return list(chosen.values()), [*defects, *_left_out(paths, listed)]


def _left_out(paths: Collection[Path], listed: Collection[Path]) -> list[Defect]:
    """The files that were recorded beside these, and are not among them. `listed` are the folders that had a list of them."""
    defects = []
    for folder in dict.fromkeys(path.parent for path in paths):
        names = {path.name.removesuffix(".gz") for path in paths if path.parent == folder}
        text: str | None = None
        with suppress(FileNotFoundError):
            text = (folder / LISTED).read_text(errors="replace")
        defects += listed_but_gone(text, names, str(folder), folder in listed)
    return defects


def listed_but_gone(list_: str | None, names: Collection[str], folder: str, listed: bool) -> list[Defect]:
    """The files of a folder that its list names and that are not among these; or the list, where there was one and it is gone.

    There is no list beside files of another recorder, and beside those that were cut out of a larger history.
    """
    if list_ is None:
        text = "the list of all files of the run was recorded beside these, and it is not there: some of them may be missing"
        return [Defect(MISSING, text, f"{folder}/{LISTED}", marks=True)] if listed else []
    text = f"{LISTED} names this file of the run, and it is not there"
    gone = [name for name in dict.fromkeys(list_.splitlines()) if name not in names]
    return [Defect(MISSING, text, f"{folder}/{name}", marks=True) for name in gone]
