"""The reported log starts over time: which records retention may have removed before a reader came.

Under retention a record that a reader passes over may have expired. That is so only if the log had begun beyond the record by
then. A report of where the log begins says it of the time at which it was asked for, or later:

- a report asked for by then begins beyond the record: the record had expired (EXPIRED);
- no report ever begins beyond it, and one was asked for later: the record was still there;
- anything else leaves it open (START_NOT_REPORTED). A later report below the record does not close it where others begin beyond
  it: after a change of leaders the log may begin lower for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linearizability.history.facts import Kind
from linearizability.history.keys import NEVER
from linearizability.rules.partition import Array, Columns, PartitionHistory
from linearizability.rules.rule import UNPROVEN, Context

COMPACTED = "compaction may have removed the records between"
EXPIRED = "the records between may have expired"
START_NOT_REPORTED = f"{UNPROVEN}whether the records between had expired: no report of the log's start shows it"


@dataclass(frozen=True)
class LogStarts:
    """The reports of where a log begins, in the order in which they were asked for."""

    asked: Array
    reached: Array
    """The highest start that each report and all before it gave."""
    last_asked: int
    """When a report was asked for last, -NEVER where none was. A final read's start, asked for before it, does not count."""

    @property
    def highest(self) -> int:
        """The highest start that was ever reported, 0 where none was: what lies above it never expired."""
        return int(self.reached[-1]) if len(self.reached) else 0

    def known_at(self, times: Array) -> Array:
        """The highest start that was asked for by each of these times."""
        return np.append(0, self.reached)[np.searchsorted(self.asked, times, side="right")]


def log_starts(partition: PartitionHistory, context: Context) -> LogStarts:
    """The reports, computed once. Where clocks stepped back, each report may have been asked for before anything, and none
    surely after it."""
    return partition.once("log starts", lambda: _log_starts(partition, context.is_timed))


def _log_starts(partition: PartitionHistory, is_timed: bool) -> LogStarts:
    reports = [
        (rows.invoked if is_timed else np.full(len(rows), -NEVER), getattr(rows, name))
        for rows, name in (
            (partition.rows(Kind.END_OFFSETS), "extra"),
            (partition.rows(Kind.LOG_START), "offset"),
            (partition.drains, "value"),
        )
    ]
    asked, start = (np.concatenate([report[column] for report in reports]) for column in (0, 1))
    last = max((int(times[starts >= 0].max(initial=-NEVER)) for times, starts in reports[:2]), default=-NEVER)
    order = np.argsort(asked, kind="stable")
    return LogStarts(asked[order], np.maximum.accumulate(start[order]) if len(start) else start, last)


def expired_by(partition: PartitionHistory, context: Context, times: Array) -> Array:
    """Records below these offsets may have expired by these times."""
    if context.contract.cleanup != "delete":
        return np.zeros(len(times), np.int64)
    return log_starts(partition, context).known_at(times)


def log_start_rows(columns: Columns) -> Array:
    """The rows that a partition's other parts need to know its log start; final reads besides."""
    chosen = [np.empty(0, np.intp)]
    for kind, column in ((Kind.END_OFFSETS, "extra"), (Kind.LOG_START, "offset")):
        rows = np.flatnonzero((columns["kind"] == kind) & (columns[column] >= 0))
        if len(rows):
            start = columns[column][rows]
            rows = rows[np.lexsort((-start, columns["invoked"][rows]))]
            reached = np.maximum.accumulate(columns[column][rows])
            rises = np.concatenate([[True], reached[1:] > reached[:-1]])
            chosen += [rows[rises], rows[-1:]]
    return np.concatenate(chosen)
