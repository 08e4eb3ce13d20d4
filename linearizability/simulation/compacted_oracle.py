"""One compacted partition over all nodes: the ends of its replicas, without the content of their batches.

Each replica compacts its log independently: batches differ between replicas, and none is permanent. So a view is one range
from the log's start to its end. `updating` judges the content by key.
"""

from __future__ import annotations

from linearizability.simulation.invariants import BatchRecord
from linearizability.simulation.partition_oracle import PartitionOracle, View
from reference.protocol.primitives import LeaderEpoch, Offset
from reference.replication.partition import Partition
from reference.storage.log import Log


class CompactedOracle(PartitionOracle):
    """The oracle of one compacted partition."""

    def _follow(self, number: int, log: Log) -> View:
        view = self.views.get(number)
        end_before = view.end if view is not None else 0
        if view is None or view.log is not log:
            view = self.views[number] = View(log, log.log_start_offset)
        self._reach(view, log.log_end_offset)
        if log.log_end_offset < end_before:
            self._require_eligible_complete()
        return view

    def _reach(self, view: View, end: Offset) -> None:
        if view.log is not None:
            view.start = view.log.log_start_offset
        view.batches = [BatchRecord(view.start, end, LeaderEpoch(0), 0)] if end > view.start else []
        view.checked = len(view.batches)

    def truncated(self, number: int, end: Offset) -> None:
        """See `PartitionOracle`."""
        view = self.views.get(number)
        if view is not None and end < view.end:
            self._reach(view, end)
            self._require_eligible_complete()

    def count_follower(self, number: int, partition: Partition, follower: int, end: int) -> None:
        """Do nothing: a follower's batches prove nothing about its leader's."""

    def lost_ends(self, number: int, partition: Partition) -> bool:
        """Whether something may be lost: of the content nothing is known, and a marker may be among it."""
        return self.is_excused

    def _commit(self, number: int, view: View, high_watermark: int) -> bool:
        if high_watermark <= self.committed_end:
            return False
        self.committed_end = high_watermark
        self._require_eligible_complete()
        return True

    def _compare(self, number: int, view: View, end: int, may_add: bool = False) -> bool:
        return False
