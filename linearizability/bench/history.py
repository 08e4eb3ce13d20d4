"""How fast histories are judged: the rules over generated facts, locally and with PySpark, from a million facts up.

A fact is one record sent or one record polled. The generated history is that of a busy healthy run, with a known number of
anomalies planted, and every measurement checks that exactly those are found: a fast wrong answer does not count.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from linearizability.interrupting import announce, leave, until_interrupted
from linearizability.progress import Progress

PLANTED = {"lost-write": 6, "duplicate": 2, "inconsistent-offsets": 4, "nonmonotonic-poll": 1, "phantom-read": 2}
"""Anomalies planted in each partition."""
RECORDS_A_PARTITION = 500_000
"""Records of one partition; each is sent once and polled once, so a partition holds twice as many facts."""
LEAST_RECORDS = 5_000
"""Fewest records of a partition that has room for PLANTED."""
PLANTED_IN_SMALL = {"lost-write": 1}
"""Anomalies of each SMALL_A_PLANT-th smaller partition: a record in its middle is not read."""
SMALL_A_PLANT = 100
RECORDS_OF_SMALL = 10
LARGE_SHARE = 0.9
"""Share of a `skewed` store's facts in one partition. The others are as large as `even` ones."""
RUN = "bench"


def partition_facts(number: int, records: int):  # type: ignore[no-untyped-def]
    """Return one partition's facts as an Arrow table: four producers in batches of ten, two consumers in polls of 500."""
    import numpy as np
    import pyarrow as pa

    from linearizability.history.facts import COLUMNS, SCHEMA, Flag, Kind

    index = np.arange(records)
    batch = index // 10
    producer = number * 8 + batch % 4
    common = {name: np.full(records, -1, kind) for name, kind in COLUMNS.items()}
    common |= {name: np.zeros(records, COLUMNS[name]) for name in ("outcome", "session", "position")}
    begun = (index * 1_000 + number).astype(np.int64)
    appends = common | {
        "kind": np.full(records, Kind.APPEND, np.int8),
        "process": producer.astype(np.int32),
        "operation": (producer.astype(np.int64) << 32) | batch // 4,
        "position": (index % 10).astype(np.int32),
        "invoked": begun - begun % 10_000,
        "completed": begun - begun % 10_000 + 15_000,
        "flags": np.full(records, Flag.ACKS_ALL | Flag.IDEMPOTENT | Flag.ORDERED | Flag.ACKNOWLEDGED, np.int16),
        "offset": index.astype(np.int64),
        "value": (number << 40 | index).astype(np.int64),
    }
    half = records // 2
    reader = np.where(index < half, number * 8 + 4, number * 8 + 5)
    polled = common | {
        "kind": np.full(records, Kind.OBSERVATION, np.int8),
        "process": reader.astype(np.int32),
        "operation": (reader.astype(np.int64) << 32) | index // 500,
        "position": (index % 500).astype(np.int32),
        "invoked": begun + 50_000,
        "completed": begun + 1_000_000,
        "flags": np.full(records, Flag.READ_COMMITTED, np.int16),
        "offset": index.astype(np.int64),
        "value": appends["value"].copy(),
    }
    kept = _plant(polled, records) if records >= LEAST_RECORDS else _plant_small(number, records)
    tables = [appends, {name: column[kept] for name, column in polled.items()}]
    length = [len(table["kind"]) for table in tables]
    columns = [np.concatenate([table[name] for table in tables]) for name in COLUMNS]
    names = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(sum(length), np.int32)), pa.array([text]))
        for text in (RUN, "bench")
    ]
    arrays = [*names, pa.array(np.full(sum(length), number, np.int32)), *(pa.array(column) for column in columns)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _plant(polled: dict[str, Any], records: int):  # type: ignore[no-untyped-def]
    """Plant the anomalies of PLANTED. Returns the mask of polled rows that stay."""
    import numpy as np

    at = np.linspace(records * 0.1, records * 0.9, 8).astype(int) // 500 * 500 + 250
    value, offset = polled["value"], polled["offset"]
    kept = np.ones(records, bool)
    kept[at[0]] = False  # never read: lost, and skipped within a poll
    for index in (at[1], at[2]):  # its neighbour's value instead: duplicate, inconsistent, lost
        value[index] = value[index - 1]
    first = (
        at[3] - 250
    )  # a poll begins with the last record of the poll before: nonmonotonic, and its own first one is lost
    value[first], offset[first] = value[first - 1], offset[first - 1]
    for number, index in enumerate((at[4], at[5])):  # never sent: phantom, and what was sent there is lost
        value[index] = -1_000_000 - 10 * int(polled["process"][0]) - number
    return kept


def _plant_small(number: int, records: int):  # type: ignore[no-untyped-def]
    import numpy as np

    kept = np.ones(records, bool)
    kept[records // 2] = number % SMALL_A_PLANT != 0
    return kept


def expected(sizes: Sequence[int]) -> dict[str, int]:
    """Return the anomalies planted in partitions of these sizes."""
    total = dict.fromkeys(PLANTED, 0)
    for number, records in enumerate(sizes):
        small = PLANTED_IN_SMALL if number % SMALL_A_PLANT == 0 else {}
        for rule, count in (PLANTED if records >= LEAST_RECORDS else small).items():
            total[rule] += count
    return total


class Shape(StrEnum):
    """Distribution of facts over partitions."""

    EVEN = "even"
    SMALL = "small"
    SKEWED = "skewed"


def sizes_of(facts: int, shape: Shape = Shape.EVEN, partitions: int = 0) -> list[int]:
    """Return the records of each partition. By default there are enough partitions to keep each small."""
    records = facts // 2
    if shape is Shape.SMALL:
        return [RECORDS_OF_SMALL] * max(1, records // RECORDS_OF_SMALL)
    if shape is Shape.SKEWED:
        large = round(records * LARGE_SHARE)
        return [large, *sizes_of(2 * (records - large))]
    partitions = partitions or max(2, round(records / RECORDS_A_PARTITION))
    return [max(LEAST_RECORDS, records // partitions)] * partitions


# -- measuring -----------------------------------------------------------------------------------------------------------


def write_store(store: Path, sizes: Sequence[int]) -> None:
    """Write a store of partitions of these sizes. Small ones share files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from linearizability.history.derivation_state import Tally
    from linearizability.history.store import StoredRun, run_folder, write_runs

    folder = run_folder(store, 0)
    folder.mkdir(parents=True)
    written: dict[str, int] = {}

    def write(tables: list[Any]) -> None:
        table = pa.concat_tables(tables).unify_dictionaries()
        file = folder / f"part-{len(written):04d}.parquet"
        pq.write_table(table, file, compression="zstd", row_group_size=2 * RECORDS_A_PARTITION)
        written[file.name] = table.num_rows
        tables.clear()

    tables: list[Any] = []
    for number, records in enumerate(sizes):
        tables.append(partition_facts(number, records))
        if records >= LEAST_RECORDS or len(tables) >= LEAST_RECORDS:
            write(tables)
    if tables:
        write(tables)
    total = sum(written.values())
    tally = Tally(invocations=1, acknowledged=total // 2, observed=total // 2)
    write_runs(store, [StoredRun(RUN, tally=tally, facts=total, parts=written)])


def counts(findings: Iterable[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in findings:
        found[item.rule] = found.get(item.rule, 0) + item.count
    return found


def checked(findings: Iterable[Any], sizes: Sequence[int]) -> None:
    found = counts(findings)
    for rule, count in expected(sizes).items():
        if found.get(rule, 0) != count:
            raise RuntimeError(f"{rule}: {found.get(rule, 0)} found where {count} were planted")


def rule_sets() -> dict[str, list[str]]:
    from linearizability.rules import FIVE, PARTITION_RULES, RULES

    return {"five": list(FIVE), "partition": [rule.id for rule in PARTITION_RULES], "all": list(RULES)}


def measure_local(store: Path, sizes: Sequence[int], names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Measure the rules in this process on facts in memory, and reading by itself."""
    from linearizability.history.contract import Contract
    from linearizability.history.store import read_store
    from linearizability.pipeline.local import context_of, judge_run
    from linearizability.rules import RULES

    begun = time.perf_counter()
    (history,) = read_store(store)
    read = time.perf_counter() - begun
    for name in names:
        rules = [RULES[rule] for rule in rule_sets()[name]]
        watch = MemoryWatch()
        with watch:
            wall, cpu, findings = timed(
                lambda rules=rules: judge_run(history.facts, RUN, context_of(Contract(), []), rules)
            )
        checked(findings, sizes)
        measured = {"read_s": round(read, 3), "peak_mb": watch.peak_mb}
        yield row("local", name, history.facts.num_rows, wall, cpu) | measured


def measure_spark(store: Path, sizes: Sequence[int], names: Iterable[str], master: str) -> Iterator[dict[str, Any]]:
    """Measure one Spark job over the store, from Parquet files to findings, in a warm session."""
    from linearizability.history.store import read_runs, sound_parts
    from linearizability.pipeline.local import context_of
    from linearizability.pipeline.spark import judge_files
    from linearizability.pipeline.spark_session import session

    spark = session(master)
    (run,) = read_runs(store)
    files, _ = sound_parts(store, 0, run)
    contexts = {RUN: context_of(run.contract, run.marks)}
    for name in names:
        watch = MemoryWatch()
        with watch:
            before = family_cpu(os.getpid())
            wall, _, findings = timed(
                lambda name=name: judge_files(spark, files, contexts, rule_sets()[name]).get(RUN, [])
            )
            cpu = family_cpu(os.getpid()) - before
        checked(findings, sizes)
        yield row(f"spark {master}", name, run.facts, wall, cpu) | {"peak_mb": watch.peak_mb}


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    cpu, begun = time.process_time(), time.perf_counter()
    result = work()
    return time.perf_counter() - begun, time.process_time() - cpu, result


def row(engine: str, rules: str, facts: int, wall: float, cpu: float) -> dict[str, Any]:
    return {
        "engine": engine,
        "rules": rules,
        "facts": facts,
        "seconds": round(wall, 3),
        "cpu_seconds": round(cpu, 3),
        "facts_per_s": round(facts / wall),
    }


class MemoryWatch:
    """Watches the most memory that this process and its descendants (the JVM, Spark's workers) held at once."""

    def __init__(self) -> None:
        self.peak_mb = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._stop.wait(0.5)
            self.peak_mb = max(self.peak_mb, family_memory(os.getpid()) >> 20)


def family_cpu(root: int) -> float:
    """Return the CPU seconds of a process and its living descendants."""
    used = 0
    for process in family_of(root):
        with suppress(OSError, IndexError, ValueError):
            used += sum(map(int, (Path("/proc") / str(process) / "stat").read_text().rsplit(")", 1)[1].split()[11:15]))
    return used / os.sysconf("SC_CLK_TCK")


def family_of(root: int) -> set[int]:
    """Return a process and its descendants."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
    family = {root}
    for _ in range(20):
        larger = family | {child for child, parent in parents.items() if parent in family}
        if larger == family:
            break
        family = larger
    return family


def family_memory(root: int) -> int:
    """Return the proportional resident bytes of a process and its descendants."""
    total = 0
    for process in family_of(root):
        with suppress(OSError, IndexError, ValueError):
            lines = (Path("/proc") / str(process) / "smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


@contextmanager
def standalone(workers: int = 2, memory: str = "3g") -> Iterator[str]:
    """A Spark master and its workers from the pip package, on this machine's loopback; yields the master's address."""
    import pyspark

    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    package = "org.apache.spark.deploy"
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="tidegauge-spark-") as folder, closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        master = [f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        worker = [f"{package}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", memory]
        worker += ["--webui-port", "0", "--work-dir", folder, f"spark://127.0.0.1:{port}"]
        try:
            for arguments in (master, *[worker] * workers):
                processes.append(
                    subprocess.Popen(
                        [launcher, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    )
                )
            yield f"spark://127.0.0.1:{port}"
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(timeout=30)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds, and CPU seconds, against facts, all logarithmic: straight lines of slope one are linear time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(12, 5), sharey=True)
    for axes, measure, title in zip(both, ("seconds", "cpu_seconds"), ("seconds", "CPU seconds"), strict=True):
        for engine, rules in dict.fromkeys((row["engine"], row["rules"]) for row in rows):
            points = [(r["facts"], r[measure]) for r in rows if (r["engine"], r["rules"]) == (engine, rules)]
            axes.plot(*zip(*sorted(points), strict=True), marker="o", label=f"{engine}, {rules} rules")
        axes.set(xscale="log", yscale="log", xlabel="facts (records sent or polled)", title=title)
        axes.grid(True, which="major", alpha=0.3)
    both[0].legend()
    figure.savefig(path, bbox_inches="tight")
    pyplot.close(figure)


def history(
    facts: Annotated[
        list[int] | None, typer.Option(help="Numbers of facts; may repeat. One million by default.")
    ] = None,
    rules: Annotated[
        list[str] | None, typer.Option(help="five, partition or all; may repeat. All three by default.")
    ] = None,
    spark: Annotated[bool, typer.Option(help="Measure PySpark too.")] = True,
    partitions: Annotated[
        int, typer.Option(help="Partitions of each history; 0: one for each million facts. One makes it a hot one.")
    ] = 0,
    shape: Annotated[
        Shape,
        typer.Option(help="small: 20 facts a partition; skewed: one partition has nine tenths of the facts."),
    ] = Shape.EVEN,
    local_up_to: Annotated[int, typer.Option(help="The local engine is measured up to so many facts.")] = 10_000_000,
    master: Annotated[
        str, typer.Option(help="The Spark master; `standalone` starts one with two workers.")
    ] = "local[2]",
    as_json: Annotated[
        bool, typer.Option("--json", help="The last line of standard output is one JSON object.")
    ] = False,
) -> None:
    """How fast histories are judged, locally and with PySpark; checks that what was planted is found."""
    from linearizability.results import new_run_folder

    names = rules or list(rule_sets())
    if wrong := [name for name in names if name not in rule_sets()]:
        raise typer.BadParameter(f"{wrong[0]!r} is none of {', '.join(rule_sets())}", param_hint="--rules")
    if partitions and min(facts or [1_000_000]) < 2 * LEAST_RECORDS * partitions:
        raise typer.BadParameter(f"a partition has at least {2 * LEAST_RECORDS} facts", param_hint="--partitions")
    folder = new_run_folder("bench", "history")
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {"folder": str(folder), "cores": os.cpu_count(), "rows": rows}

    def report(item: dict[str, Any]) -> None:
        rows.append(item)
        progress.keep(json.dumps(item))

    numbers = sorted(facts or [1_000_000])
    progress = Progress(sum(numbers))
    place: Any = standalone() if master == "standalone" else nullcontext(master)
    scratch = tempfile.TemporaryDirectory(prefix="tidegauge-bench-", dir=folder)
    with until_interrupted(summary), progress, place as address, scratch as temporary:
        progress.step("starting the engines", 0)
        warm = Path(temporary) / "warm"
        few = sizes_of(20_000)
        write_store(warm, few)
        if spark:
            list(measure_spark(warm, few, ["all"], address))
        list(measure_local(warm, few, ["all"]))
        for place_in_line, number in enumerate(numbers):
            progress.step(f"{number:,} facts", sum(numbers[:place_in_line]))
            store = Path(temporary) / str(number)
            written = sizes_of(number, shape, partitions)
            write_store(store, written)
            if number <= local_up_to:
                for item in measure_local(store, written, names):
                    report(item | {"partitions": len(written)})
            if spark:
                for item in measure_spark(store, written, names, address):
                    report(item | {"partitions": len(written)})
            shutil.rmtree(store)
    if rows:
        draw(rows, folder / "history.svg")
    summary["load"] = os.getloadavg()[2]
    (folder / "bench.json").write_text(json.dumps(summary, indent=1))
    announce(summary)
    for item in rows:
        print(
            f"{item['engine']:16} {item['rules']:10} {item['facts']:>12,} facts {item['seconds']:>9.2f} s "
            f"{item['cpu_seconds']:>8.2f} CPU s {item['facts_per_s']:>12,} facts/s"
        )
    if as_json:
        print(json.dumps(summary))
    leave(summary)
