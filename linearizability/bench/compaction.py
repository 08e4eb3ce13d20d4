"""Compaction side by side: how fast two brokers compact the same log.

A log is filled while its topic keeps everything; then the topic is set to compact, and the time counts until the broker's
`cleaner-offset-checkpoint` shows that all closed segments are clean. Both brokers run at once and are measured in turn; the
result is the median of the rounds. The broker's CPU is that of its process in the same time.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from linearizability.bench.broker import is_steady
from linearizability.bench.comparisons import Recorded, keep
from linearizability.bench.load import PRODUCE, PRODUCE_VERSION, LoadConnection, make_topic, produce_body
from linearizability.interrupting import announce, leave, until_interrupted
from linearizability.progress import Progress
from linearizability.targets.cluster import ClusterTarget
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.records.batch import build
from reference.protocol.records.compression import Codec
from reference.protocol.records.record import Record

ENGINE_ERROR = 3
INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION = 44, 1
TOPIC_RESOURCE, SET = 2, 0
BATCH_BYTES = 60_000
SEGMENT_BYTES = 16 << 20
CHECKPOINT = "cleaner-offset-checkpoint"
CONFIG = {"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": str(128 << 20)}
LOOK_S = 0.01
COMPACTION_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Case:
    """The content of the log: records of a size, with about `copies` for each key."""

    record_bytes: int
    copies: int
    codec: Codec = Codec.NONE


CASES = {
    "100 B, 4 of a key": Case(100, 4),
    "1 KB, 4 of a key": Case(1000, 4),
    "1 KB, lz4": Case(1000, 4, Codec.LZ4),
    "100 B, all keys differ": Case(100, 1),
}
"""The rows of the comparison."""


def batches(case: Case, total_bytes: int) -> list[bytes]:
    """The batches of a log."""
    chance = random.Random(11)
    now = TimestampMs(int(time.time() * 1000))
    a_batch = max(1, BATCH_BYTES // case.record_bytes)
    count = total_bytes // case.record_bytes
    keys = count // case.copies
    order = list(range(count)) if case.copies == 1 else [chance.randrange(keys) for _ in range(count)]
    half = chance.randbytes(case.record_bytes // 2)
    found: list[bytes] = []
    for start in range(0, count, a_batch):
        records = [
            Record(Offset(index), now, b"key-%012d" % key, chance.randbytes(case.record_bytes // 2) + half)
            for index, key in enumerate(order[start : start + a_batch])
        ]
        found.append(bytes(build(records, codec=case.codec)))
    return found


def configure(connection: LoadConnection, topic: str, **configs: str) -> None:
    """Set configurations of a topic; underscores in names stand for dots."""
    change = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        configs=[
            change(name=name.replace("_", "."), config_operation=SET, value=value) for name, value in configs.items()
        ],
    )
    body = IncrementalAlterConfigsRequest(resources=[resource])
    answer = connection.call(INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, body)
    if answer.responses[0].error_code:
        raise RuntimeError(f"{configs} were refused: {answer.responses[0].error_message}")


def fill(connection: LoadConnection, topic: str, data: list[bytes]) -> int:
    """Produce all batches, and return the base offset of the last one."""
    last = 0
    for batch in data:
        answer = connection.call(PRODUCE, PRODUCE_VERSION, produce_body(topic, batch, acks=-1))
        result = answer.responses[0].partition_responses[0]
        if result.error_code:
            raise RuntimeError(f"a batch was refused: error {result.error_code}")
        last = result.base_offset
    return last


def measure(target: ClusterTarget, case: Case, data: list[bytes]) -> dict[str, float]:
    """Measure one compaction on one broker. Errors: RuntimeError, TimeoutError."""
    from linearizability.bench.brokers import cpu_seconds, process_ids

    (pid,) = process_ids(target)
    checkpoint = target.member(target.nodes[0].id).data / CHECKPOINT
    host, _, port = target.nodes[0].address.rpartition(":")
    connection = LoadConnection(host, int(port))
    topic = f"compaction-{os.getpid()}-{time.monotonic_ns()}"
    make_topic(connection, topic)
    configure(connection, topic, segment_bytes=str(SEGMENT_BYTES), min_cleanable_dirty_ratio="0")
    last = fill(connection, topic, data)
    folder = checkpoint.parent / f"{topic}-0"
    logs = sorted(path for path in folder.iterdir() if path.suffix == ".log")
    closed, active = sum(path.stat().st_size for path in logs[:-1]), int(logs[-1].stem)
    if not 0 < active <= last:
        raise RuntimeError(f"{target.spec} has no closed segment of {topic}")
    time.sleep(1.0)  # let the broker flush the writes
    cpu, began = cpu_seconds(pid), time.monotonic()
    configure(connection, topic, cleanup_policy="compact")
    wanted = f"{topic} 0 {active}"
    while not checkpoint.exists() or wanted not in checkpoint.read_text():
        if time.monotonic() - began > COMPACTION_TIMEOUT_S:
            raise TimeoutError(f"{target.spec} has not compacted {closed} bytes in {COMPACTION_TIMEOUT_S:.0f} s")
        time.sleep(LOOK_S)
    seconds, used = time.monotonic() - began, cpu_seconds(pid) - cpu
    left = sum(path.stat().st_size for path in folder.iterdir() if path.suffix == ".log") - logs[-1].stat().st_size
    return {
        "seconds": seconds,
        "mb_per_s": closed / seconds / 1e6,
        "cpu_ms_per_mb": 1000 * used / (closed / 1e6),
        "left": left / closed,
    }


def compare(
    subject: str,
    against: str,
    cases: list[str],
    rounds: int,
    megabytes: int,
    folder: Any,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Measure both brokers, and return the table for JSON."""
    from linearizability.bench.brokers import open_for_bench

    table: dict[str, Any] = {"subject": subject, "against": against, "megabytes": megabytes, "rows": []}
    with (
        until_interrupted(table),
        open_for_bench(subject, folder / "subject", CONFIG) as a,
        open_for_bench(against, folder / "against", CONFIG) as b,
    ):
        for name in cases:
            data = batches(CASES[name], megabytes * 1_000_000)
            found: dict[str, list[dict[str, float]]] = {subject: [], against: []}
            try:
                for number in range(rounds):
                    for spec, target in ((subject, a), (against, b)):
                        progress(f"{name}: {spec}, round {number + 1} of {rounds}")
                        found[spec].append(measure(target, CASES[name], data))
            finally:
                if all(found.values()):
                    table["rows"].append(row_of(name, found))
    return table


def row_of(case: str, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """One row: the medians of both sides, the subject first, and the ratio of their rates."""
    medians = {
        spec: {key: statistics.median(each[key] for each in measured) for key in measured[0]}
        for spec, measured in found.items()
    }
    ours, theirs = medians.values()
    return {
        "case": case,
        "ratio": ours["mb_per_s"] / theirs["mb_per_s"],
        "steady": all(is_steady([each["mb_per_s"] for each in measured]) for measured in found.values()),
        "medians": medians,
        "rounds": found,
    }


def compaction(
    target: Annotated[str, typer.Option(help="The broker that is measured.")] = "reference:1",
    against: Annotated[str, typer.Option(help="The broker that it is compared with.")] = "kafka:4.3.1",
    case: Annotated[list[str] | None, typer.Option(help="A row of the comparison; may repeat. All by default.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each case is measured on each broker.")] = 3,
    megabytes: Annotated[
        int, typer.Option(min=40, max=10_000, help="How large the log is, before it is compressed.")
    ] = 200,
    record: Recorded = False,
    json_: Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")] = False,
) -> None:
    """Let two brokers compact the same log in turn: megabytes a second, and CPU; saved as JSON."""
    from linearizability.results import new_run_folder
    from linearizability.targets import TargetError

    unknown = [name for name in case or () if name not in CASES]
    if unknown:
        raise typer.BadParameter(f"there is no case '{unknown[0]}'; there are: {', '.join(CASES)}")
    folder = new_run_folder("bench", f"compaction-{target}-against-{against}".replace(":", "-"))
    try:
        cases = [*(case or CASES)]
        with Progress(2 * len(cases) * rounds) as progress:
            table = compare(target, against, cases, rounds, megabytes, folder, progress)
    except (TargetError, RuntimeError, TimeoutError) as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(ENGINE_ERROR) from None
    (folder / "compaction.json").write_text(json.dumps(table, indent=1))
    announce(table)
    show(table)
    typer.echo(f"results: {folder}")
    if record:
        keep(table)
    if json_:
        typer.echo(json.dumps({"folder": str(folder)} | table))
    leave(table)


def show(table: dict[str, Any]) -> None:
    """Print the comparison as a table."""
    from rich.console import Console
    from rich.table import Table

    subject, against = table["subject"], table["against"]
    view = Table(title=f"compaction: {subject} against {against} (medians; ratio of the first to the second)")
    for name in ("case", "MB/s", "", "ratio", "CPU ms/MB", "", "left", ""):
        view.add_column(name, justify="left" if name == "case" else "right")
    for row in table["rows"]:
        a, b = row["medians"][subject], row["medians"][against]
        view.add_row(
            row["case"],
            f"{a['mb_per_s']:.0f}",
            f"{b['mb_per_s']:.0f}",
            f"{row['ratio']:.2f}",
            f"{a['cpu_ms_per_mb']:.1f}",
            f"{b['cpu_ms_per_mb']:.1f}",
            f"{a['left']:.0%}",
            f"{b['left']:.0%}",
        )
    Console(width=130).print(view)
