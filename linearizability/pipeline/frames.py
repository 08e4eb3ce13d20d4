"""Histories as Spark's DataFrames: read by the workers wherever Spark reads files, judged there, results as tables.

    from linearizability.pipeline import check, facts

    read = facts(spark, "hdfs://…/runs/*", "s3a://…/store")
    found = check(read)
    found.runs.show()
    found.write("hdfs://…/results")

A place is a folder of native files, a result folder, a store of facts, a native file, or a pattern of such. Each folder is one
run, and its address is the run's key in all tables; the runs of a store are STORE#NUMBER. Spark reads the files whole (a file
has less than 2 GB), and what one of them holds never comes to the driver.

`check` also takes a DataFrame of facts of any other source. Nothing says of those that they are complete, so without
`runs` no verdict is "valid".

| table | columns |
| --- | --- |
| facts | run string, topic string, partition int, and the columns of `history.facts` |
| runs | run, id, verdict string, reasons array of string, facts long, anomalies map of string to long |
| anomalies | run, topic string, partition int, rule, permitted, text string, count, offset, value long, operations array |
| partitions | run, topic string, partition int, facts, sends, failed, unknown, reads, began, ended long (ns) |
| series | run string, seconds, ok, failed, unknown (per second), p50_ms, p99_ms double |

Of each rule, reason and partition the first anomaly has the count, and at most a hundred are there.
"""

from __future__ import annotations

import pickle
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from linearizability.history.contract import NOTHING_GIVEN, Contract
from linearizability.history.facts import COLUMNS, SCHEMA
from linearizability.history.files import MISSING, Contradiction, Defect, HistoryError
from linearizability.history.native import NativeFile, listed_but_gone
from linearizability.history.places import NoSuchPlace
from linearizability.history.recorder import FILE_PATTERN, LISTED
from linearizability.history.store import RUNS, StoredRun, Written, missing, read_runs, summed_up, under
from linearizability.history.streams import agreed, unify
from linearizability.pipeline.blocks import packed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FACTS_DDL = "run string, topic string, partition int, " + ", ".join(
    f"{name} {({1: 'byte', 2: 'short', 4: 'int', 8: 'long'})[np.dtype(kind).itemsize]}"
    for name, kind in COLUMNS.items()
)
READ_DDL = "file string, what string, content binary"
FACTS, SUMMARY, LIST, STORE = "facts", "summary", "list", "store"
"""The contents of a row that a worker has read: facts as a block, or a file's other data, pickled."""
NAMES = (FILE_PATTERN, f"{FILE_PATTERN}.gz", LISTED)
WITHIN = ",".join([*NAMES, *(f"history/{name}" for name in NAMES), RUNS, "facts/*/*.parquet"])
"""The files that are read in a folder."""
A_FILE = re.compile(r"history-[^/]*\.jsonl(\.gz)?")


@dataclass(frozen=True)
class Read:
    """Facts, and the other data of each run."""

    facts: DataFrame
    runs: dict[str, StoredRun]


@dataclass(frozen=True)
class Refused:
    """A file that is not read, and why."""

    defect: Defect
    contradicts: bool = False
    """It declares another contract than is given: then its run is not judged."""


@dataclass
class _Files:
    """The data of one run's files."""

    summaries: dict[str, Written | Refused | int] = field(default_factory=dict)
    list_: str | None = None
    store: bytes = b""


def facts(spark: SparkSession, *places: str, given: Contract = NOTHING_GIVEN) -> Read:
    """Reads all places now, once; the facts stay on the workers' disks. Errors: NoSuchPlace."""
    from pyspark.storagelevel import StorageLevel

    raw = _opened(spark, places).mapInArrow(lambda batches: _read(batches, given), READ_DDL)
    raw = raw.persist(StorageLevel.DISK_ONLY)
    known: dict[str, _Files] = defaultdict(_Files)
    for row in raw.where(raw["what"] != FACTS).collect():
        folder, content = folder_of(row["file"]), bytes(row["content"])
        if row["file"] in known[folder].summaries:
            raise NoSuchPlace(f"{row['file']} is named twice")
        if row["what"] == SUMMARY:
            known[folder].summaries[row["file"]] = pickle.loads(content)
        elif row["what"] == LIST:
            known[folder].list_ = content.decode(errors="replace")
        else:
            known[folder].store = content
    runs: dict[str, StoredRun] = {}
    left_out: list[str] = []
    for folder in sorted(known):
        summed = _stored(folder, known[folder], given) if known[folder].store else _recorded(folder, known[folder])
        runs |= summed[0]
        left_out += summed[1]
    blocks = raw.where((raw["what"] == FACTS) & ~raw["file"].isin(left_out))
    return Read(blocks.select("content").mapInArrow(_unpacked, FACTS_DDL), runs)


def _opened(spark: SparkSession, places: Iterable[str]) -> DataFrame:
    """The files of all places, with their contents."""
    from pyspark.errors import AnalysisException

    patterns = []
    for place in places:
        parent, _, name = place.rpartition("/")
        patterns.append(
            f"{parent}/{{{name},{LISTED}}}" if A_FILE.fullmatch(name) else f"{place.rstrip('/')}/{{{WITHIN}}}"
        )
    try:
        found = spark.read.format("binaryFile").load(patterns).select("path", "content")
        return found.selectExpr("path AS file", "content")
    except AnalysisException as error:
        raise NoSuchPlace(f"{error.getMessageParameters().get('path', ', '.join(places))} does not exist") from None  # type: ignore[union-attr]


def folder_of(file: str) -> str:
    """The folder of the run, or of the store, that a file belongs to."""
    folder = file.rpartition("/")[0]
    if re.fullmatch(r".*/facts/run-\d+/[^/]*", file):
        return folder.rsplit("/", 2)[0]
    return folder.removesuffix("/history")


# -- on the workers ------------------------------------------------------------------------------------------------------


def _read(batches: Iterable[pa.RecordBatch], given: Contract) -> Iterator[pa.RecordBatch]:
    with tempfile.TemporaryDirectory(prefix="tidegauge-file-") as folder:
        for batch in batches:
            for file, content in zip(batch.column("file").to_pylist(), batch.column("content"), strict=True):
                for what, part in _parts(file, content.as_buffer(), Path(folder), given):
                    columns = [pa.array([file]), pa.array([what]), pa.array([part], pa.binary())]
                    yield pa.RecordBatch.from_arrays(columns, ["file", "what", "content"])


def _parts(file: str, content: pa.Buffer, folder: Path, given: Contract) -> Iterator[tuple[str, bytes]]:
    """The contents of one file: blocks of facts under the run's key, and the file's other data."""
    name = file.rpartition("/")[2]
    if name == LISTED:
        yield LIST, content.to_pybytes()
    elif name == RUNS:
        yield STORE, content.to_pybytes()
    elif name.endswith(".parquet"):
        yield from _parts_of_store(file, content)
    else:
        (folder / name).write_bytes(content)
        try:
            stream = NativeFile(folder / name, given=given)
            rows = 0
            for batch in stream:
                yield FACTS, packed(under(folder_of(file), pa.Table.from_batches([batch])))
                rows += batch.num_rows
            stream.summary.file = file
            stream.summary.defects = [replace(defect, file=file) for defect in stream.summary.defects]
            yield SUMMARY, pickle.dumps(Written(stream.summary, file, rows))
        except HistoryError as error:
            yield SUMMARY, pickle.dumps(Refused(replace(error.defect, file=file), isinstance(error, Contradiction)))
        finally:
            (folder / name).unlink()


def _parts_of_store(file: str, content: pa.Buffer) -> Iterator[tuple[str, bytes]]:
    key = f"{folder_of(file)}#{int(file.rsplit('/', 2)[1].removeprefix('run-'))}"
    try:
        read = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        if not read.schema_arrow.equals(SCHEMA):
            raise ValueError("its columns are not those of facts")
        batches = [batch.cast(SCHEMA) for batch in read.iter_batches()]  # all of them, before one is given away
    except (pa.ArrowException, OSError, ValueError) as error:
        yield SUMMARY, pickle.dumps(Refused(Defect(MISSING, str(error), file)))
        return
    for batch in batches:
        yield FACTS, packed(under(key, pa.Table.from_batches([batch])))
    yield SUMMARY, pickle.dumps(sum(batch.num_rows for batch in batches))


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from linearizability.pipeline.spark import decoded

    for batch in batches:
        for content in batch.column(0):
            yield from decoded(unify(pa.ipc.open_stream(content.as_buffer()).read_all().to_batches())).to_batches()


# -- what is known of a run ------------------------------------------------------------------------------------------------


def _recorded(folder: str, known: _Files) -> tuple[dict[str, StoredRun], list[str]]:
    """The run in a folder of native files, and the files whose facts do not count; as `native.distinct_files`."""
    chosen: dict[int, Written] = {}
    defects: list[Defect] = []
    left_out: list[str] = []
    for file, written in sorted(known.summaries.items()):
        if not isinstance(written, Written):
            defects += [written.defect] if isinstance(written, Refused) else []
            left_out.append(file)
            if isinstance(written, Refused) and written.contradicts:
                return {folder: StoredRun(folder, defects=[written.defect])}, [*known.summaries]
            continue
        twin = chosen.setdefault(written.summary.process, written)
        if twin is not written:
            text = f"process {written.summary.process} is already in {twin.part}; this file is left out"
            defects.append(Defect(MISSING, text, file, 1, marks=True))
            left_out.append(file)
    names = {file.rpartition("/")[2].removesuffix(".gz") for file in known.summaries}
    listed = any(each.summary.listed for each in known.summaries.values() if isinstance(each, Written))
    defects += listed_but_gone(known.list_, names, folder, listed)
    return {folder: summed_up(chosen.values(), folder, defects)}, left_out


def _stored(store: str, known: _Files, given: Contract) -> tuple[dict[str, StoredRun], list[str]]:
    """The runs of a store, and its files that are not as they were written; as `store.sound_parts`."""
    with tempfile.TemporaryDirectory(prefix="tidegauge-runs-") as folder:
        (Path(folder) / RUNS).write_bytes(known.store)
        try:
            runs = read_runs(Path(folder))
            for run in runs:
                agreed(run.contract, given, store, 0)
        except HistoryError as error:
            defect = Defect(MISSING, error.defect.text, f"{store}/{RUNS}")
            return {store: StoredRun(store, defects=[defect])}, [*known.summaries]
    read: dict[str, dict[str, Any]] = defaultdict(dict)
    for file, rows in known.summaries.items():
        read[file.rsplit("/", 2)[1]][file] = rows
    left_out = [file for name in read.keys() - {f"run-{n:04d}" for n in range(len(runs))} for file in read[name]]
    for number, run in enumerate(runs):
        name = f"run-{number:04d}"
        left_out += _check_parts(f"{store}/facts/{name}", run, read[name])
    return {f"{store}#{number}": run for number, run in enumerate(runs)}, left_out


def _check_parts(folder: str, run: StoredRun, read: Mapping[str, Any]) -> list[str]:
    """Add missing facts to the run's defects; returns the files whose facts do not count."""
    expected = {f"{folder}/{name}": rows for name, rows in run.parts.items()} or dict.fromkeys(read)
    sound = 0
    left_out = [file for file in read if file not in expected]
    for file, rows in expected.items():
        found = read.get(file, "the file is not there")
        if isinstance(found, int) and rows in (None, found):
            sound += found
            continue
        why = found.defect.text if isinstance(found, Refused) else found
        run.defects.append(missing(f"holds {why} facts, of {rows}" if isinstance(why, int) else why, file))
        left_out.append(file)
    if not run.defects and sound != run.facts:
        run.defects.append(Defect(MISSING, f"holds {sound} facts, of {run.facts}", folder))
    return left_out
