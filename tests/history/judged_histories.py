"""A good run, and histories in the neutral form, for tests that damage them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from linearizability.history.contract import Contract
from linearizability.history.operations import drain, poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check
from linearizability.pipeline.verdict import Judgement


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def record(folder: Path, clock: Clock | None = None) -> list[Path]:
    """A good run: process 1 sends ten records, process 2 reads and drains them."""
    clock = clock or Clock()
    with (
        Recorder.open(folder, process=1, run="r", contract=Contract(), clock=clock) as producer,
        Recorder.open(folder, process=2, run="r", contract=Contract(), clock=clock) as consumer,
    ):
        for value in range(10):
            operation = producer.invoke("send", [send("t-0", value)])
            producer.ok(operation, [send("t-0", value, offset=value)])
        final = consumer.invoke("drain")
        for value in range(0, 10, 2):
            operation = consumer.invoke("poll", [poll()])
            consumer.ok(operation, [poll({"t-0": [(value, value), (value + 1, value + 1)]})])
        consumer.ok(final, [drain("t-0", start=0, end=10, position=10)])
    return sorted(folder.glob("*.jsonl"))


def judge(folder: Path) -> Judgement:
    (judgement,) = check([folder])
    return judgement


def neutral(path: Path, *documents: object) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(document) + "\n" for document in documents).encode()))
    return path


SENT = [
    {"process": 0, "type": "invoke", "f": "send", "time": 1, "mops": [send("t-0", 1)]},
    {"process": 0, "type": "ok", "f": "send", "time": 2, "mops": [send("t-0", 1, offset=0)]},
    {"process": 0, "type": "invoke", "f": "send", "time": 3, "mops": [send("t-0", 2)]},
    {"process": 0, "type": "ok", "f": "send", "time": 4, "mops": [send("t-0", 2, offset=1)]},
]


def polled(time: int, *offsets: int) -> list[dict[str, object]]:
    records = [{"key": "t-0", "offset": offset, "value": offset + 1} for offset in offsets]
    common = {"process": 1, "f": "poll"}
    return [
        common | {"type": "invoke", "time": time, "mops": [poll()]},
        common | {"type": "ok", "time": time + 1, "mops": [{"op": "poll", "records": records}]},
    ]


def judged_neutral(path: Path, events: Sequence[Mapping[str, object]]) -> Judgement:
    (judgement,) = check([neutral(path / "n.jsonl.gz", {"id": "x", "history": events})])
    return judgement
