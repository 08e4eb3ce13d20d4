"""The system over time: sends that succeeded, failed or stayed unknown, their latencies, and the faults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from linearizability.history.facts import Kind, Outcome
from linearizability.history.marks import healing

if TYPE_CHECKING:
    from linearizability.pipeline.verdict import Judgement

BUCKETS = 120
"""Points of a series; a run of any length has so many."""
MEDIAN, HIGH = 0.5, 0.99
"""The shares of successful sends whose latencies are reported, each by the least that so many did not exceed."""


@dataclass(frozen=True)
class Series:
    """Rows of equal length: `seconds` since the run began, then per second and per bucket."""

    seconds: npt.NDArray[Any]
    ok: npt.NDArray[Any]
    failed: npt.NDArray[Any]
    unknown: npt.NDArray[Any]
    p50_ms: npt.NDArray[Any]
    p99_ms: npt.NDArray[Any]
    faults: list[tuple[float, float, str]]
    """Begin, end and name of each fault, in seconds since the run began."""

    def to_table(self) -> pa.Table:
        names = ("seconds", "ok", "failed", "unknown", "p50_ms", "p99_ms")
        return pa.table({name: pa.array(getattr(self, name)) for name in names})


def series(facts: pa.Table, marks: list[dict[str, Any]]) -> Series | None:
    """The series of a run's sends, by the time at which they were invoked; None where there are none."""
    kind = facts.column("kind").to_numpy()
    rows = np.flatnonzero(kind == Kind.APPEND)
    if not len(rows):
        return None
    invoked, completed, outcome = (facts.column(name).to_numpy()[rows] for name in ("invoked", "completed", "outcome"))
    start, last = int(invoked.min()), int(invoked.max())
    bucket = np.minimum((((invoked - start) / 1e9) / width_s(start, last)).astype(int), BUCKETS - 1)
    ok, failed, unknown = (
        np.bincount(bucket[outcome == o], minlength=BUCKETS) for o in (Outcome.OK, Outcome.FAIL, Outcome.INFO)
    )
    done = np.flatnonzero(outcome == Outcome.OK)
    took = completed[done] - invoked[done]
    order = np.lexsort((took, bucket[done]))
    bounds = np.searchsorted(bucket[done][order], np.arange(BUCKETS + 1))
    parts = [took[order[a:b]] for a, b in pairwise(bounds)]
    p50, p99 = (
        np.array([part[math.ceil(share * len(part)) - 1] if len(part) else np.nan for part in parts])
        for share in (MEDIAN, HIGH)
    )
    return of_buckets(start, last, (ok, failed, unknown), (p50, p99), marks)


def of_buckets(
    start: int, last: int, counts: Sequence[npt.NDArray[Any]], took_ns: Sequence[npt.NDArray[Any]], marks: list[Any]
) -> Series:
    """From the times of the first and the last send, sends by outcome in each bucket, and latencies in each."""
    width = width_s(start, last)
    ok, failed, unknown = (count / width for count in counts)
    p50, p99 = (took / 1e6 for took in took_ns)
    return Series(np.arange(BUCKETS) * width, ok, failed, unknown, p50, p99, faults(marks, start, (last - start) / 1e9))


def width_s(start: int, last: int) -> float:
    """The length of a bucket in seconds."""
    return max((last - start) / 1e9 / BUCKETS, 1e-9)


def series_of(judgement: Judgement) -> Series | None:
    """The series that Spark has aggregated, or that of the facts in memory; None where there is neither."""
    history = judgement.history
    if judgement.series is None and history is not None:
        return series(history.facts, history.marks)
    return judgement.series


def faults(marks: list[dict[str, Any]], start: int, end: float) -> list[tuple[float, float, str]]:
    """Begin, end and name of each fault; a fault without a heal lasts to the end."""
    return sorted(
        ((fault["time"] - start) / 1e9, end if heal is None else (heal["time"] - start) / 1e9, _name(fault))
        for fault, heal in healing(marks)
    )


def _name(fault: dict[str, Any]) -> str:
    return " ".join(str(fault[name]) for name in ("name", "node") if fault.get(name) is not None)


def picture(drawn: Series) -> str:
    """The series as an SVG picture: rates above, latencies below, faults as shaded spans."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(10, 5))
    above.stackplot(
        drawn.seconds,
        drawn.ok,
        drawn.failed,
        drawn.unknown,
        labels=("ok", "failed", "unknown"),
        colors=("#7fb77e", "#d98880", "#d9b466"),
    )
    above.set_ylabel("sends/s")
    below.plot(drawn.seconds, drawn.p50_ms, label="p50", color="#4f81bd")
    below.plot(drawn.seconds, drawn.p99_ms, label="p99", color="#c0504d")
    below.set(ylabel="ms", xlabel="seconds", yscale="log")
    for number, (begin, end, _) in enumerate(drawn.faults):
        for axes in (above, below):
            axes.axvspan(begin, end, color="#000000", alpha=0.08, label="a fault" if number == 0 else None)
    above.legend(loc="upper right")
    below.legend(loc="upper right")
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight")
    pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]
