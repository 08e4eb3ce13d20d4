"""`tidegauge bench scale`: what partitions, connections, ids and records cost two brokers, as curves over their number.

Kinds of *steps*, each on a fresh target, subject and other in turn:
- *partitions*, three nodes, RF 3: topics are created, every partition takes a record with acks=all, the cluster idles, one
  partition is loaded, a node is killed, every partition takes a record again, the node comes back into every ISR;
- *connections*, the same load through 1 to 1,000 connections;
- *start*, one node: one of its partitions is loaded; it starts again after a clean stop, and after kill -9;
- *groups*, *transactional-ids*, *producer-ids*, one node: see `scale_ids`;
- *log* (its number is megabytes) and *upkeep* (records), one node: see `scale_logs`.

A partition counts as served once its leader has acknowledged a record: what Metadata say of it may come earlier. CPU is of
all nodes together. Every step is stored as soon as it is over; `--resume` runs only those that are missing, or failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from linearizability.bench.brokers import open_for_bench
from linearizability.bench.scale_cluster import Meter
from linearizability.bench.scale_ids import (
    measure_groups,
    measure_producer_ids,
    measure_transactional_ids,
)
from linearizability.bench.scale_logs import UPKEEP_CONFIG, measure_log, measure_upkeep
from linearizability.bench.scale_partitions import measure_connections, measure_partitions, measure_start
from linearizability.bench.scale_report import draw, show
from linearizability.faults.plan import FAST_FAILOVER
from linearizability.interrupting import announce, leave, until_interrupted
from linearizability.progress import Progress
from linearizability.results import new_run_folder
from linearizability.stored import make_folder_of, replace_file
from linearizability.targets import TargetError
from linearizability.targets.cluster import ClusterTarget

FOLDER = Path(__file__).parent
STORE = FOLDER / "scale.json"
PARTITIONS = "100,1000,3000,10000"
CONNECTIONS = "1,10,100,1000"
START_PARTITIONS = "1,1000,10000,20000"
GROUPS = "1000,100000"
TRANSACTIONAL_IDS = "1000,100000"
PRODUCER_IDS = "1000,1000000"
LOG_MEGABYTES = "1000,10000"
UPKEEP_RECORDS = "1000000,10000000"
ENGINE_ERROR = 3


class Kind(NamedTuple):
    """A kind of step."""

    nodes: int
    measure: Callable[[ClusterTarget, int, Meter], None]
    weight: float = 1.0
    """Relative time of one counted item, a partition being 1, to estimate the time left."""
    config: Mapping[str, str] = {}
    """Properties of the brokers besides those of a fast failover."""


KINDS: dict[str, Kind] = {
    "partitions": Kind(3, measure_partitions, 3.0),
    "connections": Kind(1, measure_connections),
    "start": Kind(1, measure_start),
    "groups": Kind(1, measure_groups, 0.1),
    "transactional-ids": Kind(1, measure_transactional_ids, 0.1),
    "producer-ids": Kind(1, measure_producer_ids, 0.01),
    "log": Kind(1, measure_log, 0.5),
    "upkeep": Kind(1, measure_upkeep, 0.001, UPKEEP_CONFIG),
}


@dataclass(frozen=True)
class Step:
    """One measurement on one target."""

    kind: str
    spec: str
    count: int

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.spec}/{self.count}"

    def run(self, folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
        """Return the step's row; `failed` gives the error of a target that failed."""
        kind = KINDS[self.kind]
        row: dict[str, Any] = {"kind": self.kind, "target": self.spec, "count": self.count}
        try:
            config = {**FAST_FAILOVER, **kind.config}
            with open_for_bench(self.spec, folder / self.name.replace("/", "-"), config, kind.nodes) as target:
                kind.measure(target, self.count, Meter(target, row, lambda text: progress(f"{self.name}: {text}")))
        except (TargetError, OSError, RuntimeError) as error:
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        return row


def steps(specs: Sequence[str], counts: Mapping[str, Sequence[int]]) -> Iterator[Step]:
    """Yield all steps, small ones first, the targets of each in turn."""
    for kind, numbers in counts.items():
        for count in sorted(numbers):
            yield from (Step(kind, spec, count) for spec in specs)


# ---- the store, the picture, the table


def read_store(path: Path) -> dict[str, dict[str, Any]]:
    """Return the stored rows by step."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_store(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Store the rows."""
    replace_file(path, "{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(rows[n])}" for n in rows) + "\n}\n")


# ---- the command

STARTS_WEIGH = 1_000
"""Starting brokers takes about as long as this many partitions, to estimate the time left."""


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",") if each]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint=option) from None


def scale(
    target: Annotated[str, typer.Option(help="What is measured, without its number of nodes.")] = "reference",
    against: Annotated[str, typer.Option(help="What it is compared with; empty: with nothing.")] = "kafka:4.3.1",
    partitions: Annotated[str, typer.Option(help="Numbers of partitions of three nodes; empty: none.")] = PARTITIONS,
    connections: Annotated[str, typer.Option(help="Numbers of connections to one node; empty: none.")] = CONNECTIONS,
    start: Annotated[str, typer.Option(help="Numbers of partitions with which one node starts.")] = START_PARTITIONS,
    groups: Annotated[str, typer.Option(help="Numbers of groups of one node.")] = GROUPS,
    transactional_ids: Annotated[str, typer.Option(help="Numbers of transactional ids.")] = TRANSACTIONAL_IDS,
    producer_ids: Annotated[str, typer.Option(help="Numbers of idempotent producers.")] = PRODUCER_IDS,
    log: Annotated[str, typer.Option(help="Megabytes of a log with which one node starts.")] = LOG_MEGABYTES,
    upkeep: Annotated[str, typer.Option(help="Records to compact, and to delete, beside traffic.")] = UPKEEP_RECORDS,
    kind: Annotated[list[str] | None, typer.Option(help="A kind of step; may repeat. All by default.")] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="Begin no step after this time.")] = 1e6,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is stored, and run what is missing.")] = False,
    store: Annotated[Path, typer.Option(help="Where rows are kept; the picture lies beside it.")] = STORE,
    json_: Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")] = False,
) -> None:
    """What partitions, connections, groups, ids and large logs cost: times, CPU, memory, descriptors, latencies beside."""
    if unknown := [name for name in kind or () if name not in KINDS]:
        raise typer.BadParameter(f"there is no kind '{unknown[0]}'; there are: {', '.join(KINDS)}")
    given = (partitions, connections, start, groups, transactional_ids, producer_ids, log, upkeep)
    counts = {
        name: _numbers(numbers, f"--{name}")
        for name, numbers in zip(KINDS, given, strict=True)
        if not kind or name in kind
    }
    make_folder_of(store)
    rows = read_store(store) if resume else {}
    folder = new_run_folder("bench", "scale")
    until = time.monotonic() + minutes * 60
    planned = steps([spec for spec in (target, against) if spec], counts)
    missing = [step for step in planned if "failed" in rows.get(step.name, {"failed": "not run"})]
    weights = [STARTS_WEIGH + step.count * KINDS[step.kind].weight for step in missing]
    said: dict[str, Any] = {"folder": str(folder), "store": str(store)}
    with until_interrupted(said), Progress(sum(weights)) as progress:
        for number, step in enumerate(missing):
            if time.monotonic() > until:
                break
            done = sum(weights[:number])
            rows[step.name] = step.run(folder, lambda text, done=done: progress.step(text, done))
            progress.keep(json.dumps(rows[step.name]))
            write_store(store, rows)
    draw(rows.values(), store.with_suffix(".svg"))
    announce(said)
    show(rows.values())
    if json_:
        print(json.dumps(said | {"rows": [*rows.values()]}))
    leave(said, ENGINE_ERROR if any("failed" in row for row in rows.values()) else 0)
