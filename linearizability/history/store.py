"""Facts on disk for analysis: Parquet files by run, and beside them what is known of each run.

    STORE/runs.json                     contract, tally, defects and marks of each run
    STORE/facts/run-0000/part-0000.parquet, …

JSON lines are for recording: safe in a crash, a line an event. Parquet is for judging: a tenth of the size, and read by
column. A store is written file by file with bounded memory, and judged by either engine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from linearizability.history.contract import Contract
from linearizability.history.derivation import Tally
from linearizability.history.facts import SCHEMA
from linearizability.history.files import Defect, HistoryError
from linearizability.history.streams import FileSummary, History, Stream, merge_defects, merged_contract, unify

RUNS = "runs.json"
FORMAT = "tidegauge-facts/1"


@dataclass
class StoredRun:
    """What is known of one run besides its facts."""

    id: str
    contract: Contract = field(default_factory=Contract)
    tally: Tally = field(default_factory=Tally)
    defects: list[Defect] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    facts: int = 0

    def history(self, facts: pa.Table | None = None) -> History:
        """The run as a history; without `facts` an empty table stands in for them."""
        given = {} if facts is None else {"facts": facts}
        return History(
            self.id, self.contract, tally=self.tally, defects=self.defects, marks=self.marks, names=self.names, **given
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


def write_stream(stream: Stream, target: Path, run: str) -> tuple[FileSummary, int]:
    """One stream to one Parquet file; its facts are written under the name `run`. Memory is bounded."""
    rows = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, SCHEMA, compression="zstd") as writer:
        for batch in stream:
            writer.write_table(under(run, pa.Table.from_batches([batch])))
            rows += batch.num_rows
    return stream.summary, rows


def under(run: str, facts: pa.Table) -> pa.Table:
    """The same facts under another run's name."""
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(facts.num_rows, np.int32)), pa.array([run]))
    return facts.set_column(0, SCHEMA.field("run"), names)


def summed_up(results: Iterable[tuple[FileSummary, int]], identifier: str, defects: Iterable[Defect] = ()) -> StoredRun:
    """The results of `write_stream` for all streams of a run, and what was wrong with those left out."""
    results = list(results)
    summaries = [summary for summary, _ in results]
    run = StoredRun(identifier, defects=[*defects, *merge_defects(summaries)], facts=sum(rows for _, rows in results))
    if summaries:
        run.id, run.contract = summaries[0].run or identifier, merged_contract(summaries)
    for summary in summaries:
        run.tally.add(summary.tally)
        run.marks += summary.marks
        run.names |= summary.names
        run.sources.append(summary.file)
    run.marks.sort(key=lambda mark: mark["time"])
    return run


def write_runs(store: Path, runs: Iterable[StoredRun]) -> None:
    document = {"format": FORMAT, "runs": [_to_json(run) for run in runs]}
    (store / RUNS).write_text(json.dumps(document, indent=1))


def write_histories(store: Path, histories: Iterable[History]) -> list[StoredRun]:
    """Histories in memory as a store."""
    runs = []
    for number, history in enumerate(histories):
        folder = run_folder(store, number)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(under(str(number), history.facts), folder / "part-0000.parquet", compression="zstd")
        run = StoredRun(history.id, history.contract, history.tally, history.defects, history.marks, history.names)
        run.sources, run.facts = history.sources, history.facts.num_rows
        runs.append(run)
    write_runs(store, runs)
    return runs


def read_runs(store: Path) -> list[StoredRun]:
    """What is known of a store's runs."""
    path = store / RUNS
    try:
        document = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise ValueError(f"{document['format']!r} is not {FORMAT}")
        return [_from_json(run) for run in document["runs"]]
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(path, 1, f"not a store of facts: {error}") from error


def read_store(store: Path) -> Iterator[History]:
    """The runs of a store as histories in memory."""
    for number, run in enumerate(read_runs(store)):
        files = sorted(run_folder(store, number).glob("*.parquet"))
        try:
            tables = [pq.read_table(file, schema=SCHEMA) for file in files]
        except (pa.ArrowInvalid, OSError) as error:
            raise HistoryError(run_folder(store, number), 0, str(error)) from error
        yield run.history(unify(batch for table in tables for batch in table.to_batches()))


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
    )
