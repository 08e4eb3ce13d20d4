"""Reading histories: files of JSON lines to facts, with everything that is wrong with the files said by file and line.

Two forms are read here; `importers/` holds those of other tools:

- *native*: what `recorder` writes, one file a process. Lines are numbered, so a missing, doubled or reordered line shows.
- *neutral*: one whole history a line, `{"id": …, "history": [event, …], "options": {…}}`, operations paired by process.

Reading stops at the first line of a file that cannot be right. What was read before stands as evidence: an anomaly that
rests on what *is there* stays one. What rests on what is *missing* is no longer proven, and nothing is "valid" any more.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pydantic import ValidationError
from pydantic_core import from_json

from linearizability.history.contract import Contract
from linearizability.history.derivation import BadEvent, Derivation, Tally
from linearizability.history.facts import FactsBuilder, empty_facts
from linearizability.history.operations import INVOKE
from linearizability.history.recorder import FILE_PATTERN, FORMAT

ROWS_A_BATCH = 65_536
"""Facts a record batch; with the open operations this is all that reading holds in memory."""
MAX_LINE_BYTES = 256 << 20
"""A longer line is no event of ours."""
MAX_MARKS = 100_000
"""Faults and notes kept a file; a run has hundreds."""

MISSING, CLOCK, CONTRACT = "missing", "clock", "contract"


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

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return place + self.text


class HistoryError(Exception):
    """A file that is no history at all. Names the file, and the line where there is one."""

    def __init__(self, file: Path | str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}" if line else f"{file}: {text}")
        self.defect = Defect(MISSING, text, str(file), line)


@dataclass
class FileSummary:
    """All that is known of one file besides its facts."""

    file: str
    run: str = ""
    process: int = 0
    contract: Contract = field(default_factory=Contract)
    tally: Tally = field(default_factory=Tally)
    defects: list[Defect] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)


@dataclass
class History:
    """One history in memory: facts and all that a verdict needs."""

    id: str
    contract: Contract = field(default_factory=Contract)
    facts: pa.Table = field(default_factory=empty_facts)
    tally: Tally = field(default_factory=Tally)
    defects: list[Defect] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] | None = None
    """Its events, where they are in memory anyway; see `events.events_of`."""
    labels: list[str] | None = None
    """The anomalies that somebody else found in it (the neutral form's `anomalies`)."""


def open_text(path: Path) -> IO[bytes]:
    """A file's bytes, unpacked where they are gzip."""
    stream = path.open("rb")
    if stream.read(2) == b"\x1f\x8b":
        stream.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    stream.seek(0)
    return stream


def numbered_lines(path: Path) -> Generator[tuple[int, bytes, bool], None, None]:
    """Each line's number, bytes and whether it ended with a newline (a torn last line does not)."""
    with open_text(path) as stream:
        number = 0
        while True:
            number += 1
            try:
                line = stream.readline(MAX_LINE_BYTES)
            except (EOFError, OSError, gzip.BadGzipFile) as error:
                raise HistoryError(path, number, f"cannot be read: {error}") from error
            if not line:
                return
            yield number, line, line.endswith(b"\n")


# -- the native form -----------------------------------------------------------------------------------------------------


def history_files(folder: Path) -> list[Path]:
    """A run's files: those in the folder, or in its `history` folder (a result folder)."""
    for home in (folder, folder / "history"):
        files = sorted([*home.glob(FILE_PATTERN), *home.glob(FILE_PATTERN + ".gz")])
        if files:
            return files
    return []


class NativeFile:
    """One process file, read once: iterate for record batches; `summary` is complete when the iteration ends."""

    def __init__(self, path: Path, run: str = "") -> None:
        self.path = path
        self._lines = numbered_lines(path)
        self.summary = FileSummary(str(path), run)
        self._header()
        self._builder = FactsBuilder(run or self.summary.run)
        self._derivation = Derivation(self._builder, self.summary.contract, self.summary.process << 32)
        self._last_time: int | None = None

    def _header(self) -> None:
        for number, line, whole in self._lines:
            try:
                header = from_json(line)
                if not whole or header["type"] != "header" or header["format"] != FORMAT:
                    raise ValueError(f"not the header of a {FORMAT} file")
                self.summary.run = self.summary.run or str(header.get("run") or "")
                self.summary.process = int(header["process"])
                self.summary.contract = Contract.from_json(header.get("contract"))
            except (ValueError, KeyError, TypeError) as error:
                raise HistoryError(self.path, number, _reason(error)) from error
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
        except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
            self.summary.defects.append(Defect(MISSING, _reason(error), str(self.path), number))
            complete = False
        except HistoryError as error:
            self.summary.defects.append(error.defect)
            complete = False
        else:
            if not complete:
                text = "the file ends without its closing line: what came after is not known"
                self.summary.defects.append(Defect(MISSING, text, str(self.path), number))
        self._derivation.finish(complete)
        self.summary.tally = self._derivation.tally
        self.summary.names = self._derivation.names
        if len(self._builder):
            yield self._builder.take()

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
            if len(self.summary.marks) < MAX_MARKS:
                self.summary.marks.append(event)
        elif kind == INVOKE:
            self._derivation.invoke(event["operation"], event["process"], event)
        elif kind in ("ok", "fail", "info"):
            self._derivation.complete(event["operation"], event["process"], event)
        else:
            raise BadEvent(f"{kind!r} is no type of event")
        return False


def read_run(paths: Iterable[Path], run: str = "") -> History:
    """The files of one run as one history in memory."""
    tables: list[pa.RecordBatch] = []
    summaries: list[FileSummary] = []
    chosen, defects = distinct_files(paths)
    for path in chosen:
        file = NativeFile(path, run)
        tables.extend(file)
        summaries.append(file.summary)
    if not summaries:
        raise (
            HistoryError(defects[0].file, defects[0].line, defects[0].text)
            if defects
            else HistoryError(run, 0, "empty")
        )
    history = History(
        id=run or summaries[0].run or Path(summaries[0].file).stem,
        contract=summaries[0].contract,
        facts=unify(tables),
        defects=[*defects, *merge_defects(summaries)],
        sources=[summary.file for summary in summaries],
    )
    for summary in summaries:
        history.tally.add(summary.tally)
        history.marks.extend(summary.marks)
        history.names.update(summary.names)
    history.marks.sort(key=lambda mark: mark["time"])
    return history


def distinct_files(paths: Iterable[Path]) -> tuple[list[Path], list[Defect]]:
    """The files that are histories, one a process, and what is wrong with the others. Reads headers only."""
    chosen: dict[int, Path] = {}
    defects: list[Defect] = []
    for path in paths:
        try:
            process = NativeFile(path).summary.process
        except HistoryError as error:
            defects.append(error.defect)
            continue
        twin = chosen.setdefault(process, path)
        if twin is not path:
            text = f"process {process} is already in {twin}; this file is left out"
            defects.append(Defect(MISSING, text, str(path), 1))
    return list(chosen.values()), defects


def unify(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Record batches as one table with one dictionary of topics."""
    batches = list(batches)
    return pa.Table.from_batches(batches).unify_dictionaries() if batches else empty_facts()


CLUSTER_TERMS = ("replication_factor", "min_isr", "unclean_election", "replicas_losing_unflushed_data", "cleanup")


def merge_defects(summaries: list[FileSummary]) -> list[Defect]:
    """The files' own defects, and those that only show when the files of a run are held side by side."""
    defects = [defect for summary in summaries for defect in summary.defects]
    for summary in summaries:
        if summary.run != summaries[0].run:
            text = f"belongs to run {summary.run!r}, {summaries[0].file} to {summaries[0].run!r}"
            defects.append(Defect(CONTRACT, text, summary.file, 1))
        for term in CLUSTER_TERMS:
            mine, theirs = getattr(summary.contract, term), getattr(summaries[0].contract, term)
            if mine != theirs:
                text = f"declares {term}={mine}, {summaries[0].file} {theirs}"
                defects.append(Defect(CONTRACT, text, summary.file, 1))
    return defects


# -- the neutral form ----------------------------------------------------------------------------------------------------


def read_neutral(path: Path) -> Iterator[History]:
    """The histories of a neutral file, one a line."""
    with closing(numbered_lines(path)) as lines:
        for number, line, _ in lines:
            if not line.strip():
                continue
            try:
                document = from_json(line)
                identifier, events = str(document["id"]), document["history"]
            except (ValueError, KeyError, TypeError) as error:
                raise HistoryError(path, number, _reason(error)) from error
            options = document.get("options") or {}
            history = derive_events(identifier, events, options.get("contract"), str(path), number)
            history.labels = document.get("anomalies")
            yield history


def derive_events(
    identifier: str, events: Iterable[dict[str, Any]], contract: Any = None, file: str = "", line: int = 0
) -> History:
    """A history from events that are paired by process: one operation at a time each, in the order of their index."""
    events = list(events)
    history = History(identifier, sources=[file] if file else [], events=events)
    try:
        history.contract = Contract.from_json(contract)
    except ValidationError as error:
        history.defects.append(Defect(CONTRACT, _reason(error), file, line))
    builder = FactsBuilder(identifier)
    derivation = Derivation(builder, history.contract)
    open_by_process: dict[Any, int] = {}
    processes: dict[Any, int] = {}
    last_time = None
    complete = True
    index = 0
    batches: list[pa.RecordBatch] = []
    try:
        for index, event in enumerate(events):
            event = event | {"time": event["time"] if event.get("time") is not None else index}
            if last_time is not None and event["time"] < last_time and not history.defects:
                history.defects.append(Defect(CLOCK, f"event {index}: the clock steps back", file, line))
            last_time = event["time"]
            who, kind = event.get("process"), event.get("type")
            if event.get("f") in ("fault", "heal", "note", "quiet") or who == "nemesis":
                history.marks.append(event)
                continue
            process = processes.setdefault(who, _process_number(who, len(processes)))
            named = event.get("operation")
            if named is not None and kind in (INVOKE, "ok", "fail", "info"):
                number = process << 32 | int(named)  # paired by number: a process may have several at once
                act = derivation.invoke if kind == INVOKE else derivation.complete
                act(number, process, event)
            elif kind == INVOKE:
                if who in open_by_process:
                    raise BadEvent(f"process {who} invokes while its last operation is open")
                number = event["index"] if type(event.get("index")) is int else index
                open_by_process[who] = process << 32 | number
                derivation.invoke(open_by_process[who], process, event)
            elif kind in ("ok", "fail", "info"):
                if who not in open_by_process:
                    raise BadEvent(f"process {who} completes an operation that it did not invoke")
                derivation.complete(open_by_process.pop(who), process, event)
            else:
                raise BadEvent(f"{kind!r} is no type of event")
            if len(builder) >= ROWS_A_BATCH:
                batches.append(builder.take())
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
        complete = False
        history.defects.append(Defect(MISSING, f"event {index}: {_reason(error)}", file, line))
    derivation.finish(complete)
    batches.append(builder.take())
    history.facts, history.tally, history.names = unify(batches), derivation.tally, derivation.names
    return history


FOREIGN_PROCESSES = 1 << 30
"""Processes that are no small numbers in a foreign history are numbered from here."""


def _process_number(who: Any, known: int) -> int:
    return who if isinstance(who, int) and 0 <= who < FOREIGN_PROCESSES else FOREIGN_PROCESSES + known


# -- any form ------------------------------------------------------------------------------------------------------------

Form = Callable[[Path], Iterator[History]]


def detect(path: Path) -> str:
    """A file's form by its first line: native, neutral, edn or another importer's name."""
    from linearizability.history.importers import detect_foreign

    with closing(numbered_lines(path)) as lines:
        first = next((line for _, line, _ in lines if line.strip()), b"")
    if not first:
        raise HistoryError(path, 1, "the file is empty")
    try:
        document = json.loads(first)
    except ValueError:
        document = None
    if isinstance(document, dict):
        if document.get("type") == "header" and str(document.get("format", "")).startswith("tidegauge-history/"):
            return "native"
        if "history" in document:
            return "neutral"
    foreign = detect_foreign(first, document)
    if foreign is None:
        raise HistoryError(path, 1, "not a history in any form that is known")
    return foreign


def read_histories(paths: Iterable[Path], form: str = "auto") -> Iterator[History | HistoryError]:
    """All histories of files and folders. Native files of one run are one history; a file that is none yields its error."""
    from linearizability.history.importers import IMPORTERS

    runs: dict[str, list[Path]] = {}
    for path in paths:
        try:
            if path.is_dir() and form not in IMPORTERS:
                files = history_files(path)
                if not files:
                    raise HistoryError(path, 0, f"holds no {FILE_PATTERN}")
                runs[str(path)] = files
                continue
            chosen = detect(path) if form == "auto" else form
            if chosen == "native":
                runs.setdefault(NativeFile(path).summary.run or str(path), []).append(path)
            elif chosen == "neutral":
                yield from read_neutral(path)
            else:
                yield from IMPORTERS[chosen](path)
        except HistoryError as error:
            yield error
        except OSError as error:
            yield HistoryError(path, 0, error.strerror or str(error))
    for files in runs.values():
        try:
            yield read_run(files)
        except HistoryError as error:
            yield error


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return str(error) or type(error).__name__
