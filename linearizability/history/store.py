"""Facts on disk for analysis: Parquet files by run, and a file with the other data of each run.

    STORE/runs.json                     contract, tally, defects, marks and parts of each run
    STORE/facts/run-0000/part-0000.parquet, …

JSON lines are for recording: safe in a crash, a line an event. Parquet is for judging: a tenth of the size, and read by
column. A store is written file by file with bounded memory, and judged by either engine.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from linearizability.history.contract import Contract
from linearizability.history.derivation_state import Tally
from linearizability.history.facts import SCHEMA
from linearizability.history.files import MISSING, UNREADABLE, Defect, HistoryError, reason
from linearizability.history.streams import FileSummary, History, Stream, merge_defects, merged_contract, unify

RUNS = "runs.json"
FORMAT = "tidegauge-facts/1"


@dataclass
class StoredRun:
    """The data of one run besides its facts."""

    id: str
    contract: Contract = field(default_factory=Contract)
    tally: Tally = field(default_factory=Tally)
    defects: list[Defect] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    facts: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    """The facts in each of its files, by the file's name."""

    def history(self, facts: pa.Table | None = None) -> History:
        """The run as a history; without `facts` an empty table stands in for them."""
        given = {} if facts is None else {"facts": facts}
        return History(
            self.id,
            self.contract,
            tally=self.tally,
            defects=self.defects,
            marks=self.marks,
            names=self.names,
            sources=self.sources,
            **given,
        )


Source = Callable[[], Iterable[Stream]]
"""Opens a source of facts where it is read: a file, or the files of another tool."""


@dataclass(frozen=True)
class Unread:
    """A run that is not yet in a store: its sources, each read by one worker, and what is wrong with what is left out."""

    name: str
    sources: tuple[Source, ...]
    defects: tuple[Defect, ...] = ()


def is_store(folder: Path) -> bool:
    return (folder / RUNS).is_file()


def facts_folder(store: Path) -> Path:
    return store / "facts"


def run_folder(store: Path, number: int) -> Path:
    return facts_folder(store) / f"run-{number:04d}"


@dataclass(frozen=True)
class Written:
    """The result of `write_stream`."""

    summary: FileSummary
    part: str
    rows: int


ROWS_TOGETHER = 524_288
"""Facts that are gathered before they are written: some 60 MB."""
ROWS_APART = 16_384
"""Facts of one partition, of those that were gathered, that get a row group of their own."""


def write_stream(stream: Stream, target: Path, run: str) -> Written:
    """One stream to one Parquet file; its facts are written under the name `run`. Memory is bounded.

    A partition with many facts gets row groups of its own: Spark's workers judge it without a shuffle. The order of one
    partition's facts is kept.
    """
    rows = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, SCHEMA, compression="zstd", write_page_checksum=True) as writer:
        for facts in _gathered(stream):
            for group in _apart(under(run, facts)):
                writer.write_table(group)
            rows += facts.num_rows
    return Written(stream.summary, target.name, rows)


def _gathered(stream: Stream) -> Iterator[pa.Table]:
    """The stream's facts in few tables, each with one dictionary of topics."""
    batches: list[pa.RecordBatch] = []
    for batch in stream:
        batches.append(batch)
        if sum(each.num_rows for each in batches) >= ROWS_TOGETHER:
            yield unify(batches)
            batches = []
    if batches:
        yield unify(batches)


def _apart(facts: pa.Table) -> Iterator[pa.Table]:
    """The facts of each large partition, and then those of all others together."""
    topics = facts.column("topic").combine_chunks().indices
    numbered = pa.table({"topic": topics, "partition": facts.column("partition"), "row": np.arange(facts.num_rows)})
    groups = numbered.group_by(["topic", "partition"]).aggregate([("row", "list")]).column("row_list").combine_chunks()
    rows, bounds = groups.flatten().to_numpy(), groups.offsets.to_numpy()
    others: list[npt.NDArray[np.int64]] = []
    for begin, end in itertools.pairwise(bounds):
        if end - begin >= ROWS_APART:
            yield facts.take(np.sort(rows[begin:end]))
        else:
            others.append(rows[begin:end])
    if others:
        yield facts.take(np.sort(np.concatenate(others)))


def under(run: str, facts: pa.Table) -> pa.Table:
    """The same facts under another run's name."""
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(facts.num_rows, np.int32)), pa.array([run]))
    return facts.set_column(0, SCHEMA.field("run"), names)


def summed_up(results: Iterable[Written], identifier: str, defects: Iterable[Defect] = ()) -> StoredRun:
    """The results of `write_stream` for all streams of a run, and what was wrong with those left out."""
    parts = {written.part: (written.summary, written.rows) for written in results}
    summaries = [summary for summary, _ in parts.values()]
    run = StoredRun(identifier, defects=[*defects, *merge_defects(summaries)])
    run.parts = {part: rows for part, (_, rows) in parts.items()}
    run.facts = sum(run.parts.values())
    if summaries:
        run.id, run.contract = summaries[0].run or identifier, merged_contract(summaries)
    for summary in summaries:
        run.tally.add(summary.tally)
        run.marks += summary.marks
        run.names |= summary.names
        run.sources.append(summary.file)
    run.marks.sort(key=lambda mark: mark["time"])
    return run


def sound_parts(store: Path, number: int, run: StoredRun) -> tuple[list[Path], list[Defect]]:
    """A run's undamaged files, and the defects of the others; by their footers alone."""
    folder = run_folder(store.resolve(), number)
    expected = run.parts or dict.fromkeys(sorted(file.name for file in folder.glob("*.parquet")))
    sound: list[Path] = []
    defects: list[Defect] = []
    rows = 0
    for name, written in expected.items():
        file = folder / name
        try:
            footer = pq.ParquetFile(file)
            if not footer.schema_arrow.equals(SCHEMA):
                raise ValueError("its columns are not those of facts")
            if written not in (None, footer.metadata.num_rows):
                raise ValueError(f"holds {footer.metadata.num_rows} facts, of {written}")
        except (pa.ArrowException, OSError, ValueError) as error:
            defects.append(missing(str(error), file))
            continue
        sound.append(file)
        rows += footer.metadata.num_rows
    if not defects and rows != run.facts:
        defects.append(Defect(MISSING, f"holds {rows} facts, of {run.facts}", str(folder)))
    return sound, defects


def missing(why: str, file: Path | str) -> Defect:
    """The defect of a facts file that is gone, or is not as it was written."""
    return Defect(MISSING, f"the run's facts are missing: {why}", str(file))


def write_runs(store: Path, runs: Iterable[StoredRun]) -> None:
    document = {"format": FORMAT, "runs": [_to_json(run) for run in runs]}
    (store / RUNS).write_text(json.dumps(document, indent=1))


def write_histories(store: Path, histories: Iterable[History]) -> list[StoredRun]:
    """Histories in memory as a store."""
    runs = []
    for number, history in enumerate(histories):
        folder = run_folder(store, number)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "part-0000.parquet"
        pq.write_table(under(str(number), history.facts), file, compression="zstd", write_page_checksum=True)
        run = StoredRun(history.id, history.contract, history.tally, history.defects, history.marks, history.names)
        run.sources, run.facts = history.sources, history.facts.num_rows
        run.parts = {file.name: run.facts}
        runs.append(run)
    write_runs(store, runs)
    return runs


def read_runs(store: Path) -> list[StoredRun]:
    """The data of a store's runs besides their facts."""
    path = store / RUNS
    try:
        document = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise ValueError(f"{document['format']!r} is not {FORMAT}")
        return [_from_json(run) for run in document["runs"]]
    except (*UNREADABLE, OSError) as error:
        raise HistoryError(path, 1, f"not a store of facts: {reason(error)}") from error


def read_store(store: Path) -> Iterator[History]:
    """The runs of a store as histories in memory. A damaged file costs its run the facts in it, and no other run."""
    for number, run in enumerate(read_runs(store)):
        files, defects = sound_parts(store, number, run)
        run.defects += defects
        batches: list[pa.RecordBatch] = []
        for file in files:
            try:
                batches += read_part(file).to_batches()
            except HistoryError as error:
                run.defects.append(missing(error.defect.text, file))
        facts = unify(batches)
        del batches
        pa.default_memory_pool().release_unused()
        yield run.history(facts)


def read_part(file: Path) -> pa.Table:
    """The facts in one file. Errors: HistoryError where its bytes are not those that were written."""
    try:
        return pq.read_table(file, schema=SCHEMA, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise HistoryError(file, 0, str(error)) from error


def _to_json(run: StoredRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "contract": run.contract.model_dump(),
        "tally": {**vars(run.tally), "operations": dict(run.tally.operations)},
        "defects": [vars(defect) for defect in run.defects],
        "marks": run.marks,
        "names": {str(number): name for number, name in run.names.items()},
        "sources": run.sources,
        "facts": run.facts,
        "parts": run.parts,
    }


def _from_json(value: dict[str, Any]) -> StoredRun:
    tally = Tally(**{**value["tally"], "operations": Counter(value["tally"]["operations"])})
    return StoredRun(
        value["id"],
        Contract.from_json(value["contract"]),
        tally,
        [Defect(**defect) for defect in value["defects"]],
        value["marks"],
        {int(number): name for number, name in value["names"].items()},
        value["sources"],
        value["facts"],
        value.get("parts", {}),
    )
