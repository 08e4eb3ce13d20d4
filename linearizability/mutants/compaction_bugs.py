"""Bugs of compaction. They concern one log, so the log's state machine and the suite's requirements of compaction find them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from linearizability.mutants.registry import mutant
from reference.protocol.records.batch import HEADER_BYTES
from reference.storage.batch_filter import _written
from reference.storage.offset_map import SUPERSEDED

LOGS = "tests.storage.disk_log_machines:SimulatedLogMachine"


@mutant(
    "reference.storage.batch_filter:BatchFilter.__init__",
    "A tombstone may go with the next compaction that meets it, whatever delete.retention.ms says.",
    caught_by=("CMP-04",),
    machine=LOGS,
)
def tombstone_dropped_early(
    original: Any, kept: Any, keys: Any, transactions: Any, producers: Any, now: int, delete_retention_ms: int
) -> None:
    original(kept, keys, transactions, producers, now, 0)


@mutant(
    "reference.storage.offset_map:OffsetMap.read",
    "The map of keys marks a key's last record as superseded, too.",
    caught_by=("CMP-01",),
    machine=LOGS,
)
def newest_value_lost(original: Any, keys: Any, batch: Any) -> None:
    original(keys, batch)
    keys.states[:] = bytes((SUPERSEDED,)) * len(keys.states)


@mutant(
    "reference.storage.batch_filter:BatchFilter._rewritten",
    "A batch that loses records ends earlier: its last offset is counted from the records that are left.",
    machine=LOGS,
)
def offsets_renumbered(original: Any, kept: Any, records: Any, is_kept: bytes, needs_horizon: bool) -> Any:
    header, written = original(kept, records, is_kept, needs_horizon)
    return _written(header._replace(last_offset_delta=header.record_count - 1), bytes(written[HEADER_BYTES:]))


@mutant(
    "reference.storage.cleaned_transactions:CleanedTransactions.may_drop",
    "The marker of an aborted transaction goes while its records stay: they are read as if they had been committed.",
    caught_by=("CMP-08",),
    machine=LOGS,
    fuzz=True,
    workload="copy",
)
def aborted_records_revived(original: Any, transactions: Any, batch: Any) -> bool:
    is_useless = original(transactions, batch)
    if batch.header.is_control:
        return is_useless
    transactions._met.discard(batch.header.producer_id)
    return False


@mutant(
    "reference.storage.batch_filter:BatchFilter._outlives",
    "An empty batch goes although it carries a producer's last sequence number: its retry is appended again.",
    caught_by=("CMP-09",),
    machine=LOGS,
)
def producers_forgotten_by_compaction(original: Any, kept: Any, header: Any) -> bool:
    return header.next_offset == kept._keys.end


@mutant(
    "reference.storage.cleanable:cleanable",
    "The dirty section goes up to the active segment: records that are not committed, or of an open transaction, are compacted.",
    machine=LOGS,
)
def compacted_beyond_what_is_stable(original: Any, closed: Any, config: Any, active_base: int, *bounds: int) -> Any:
    log_start, checkpoint, _, now = bounds
    return original(closed, config, active_base, log_start, checkpoint, active_base, now)


@mutant(
    "reference.storage.cleanable:cleanable",
    "Records are compacted before they have been there for min.compaction.lag.ms.",
    caught_by=("CMP-03",),
)
def compaction_lag_ignored(original: Any, closed: Any, config: Any, *bounds: int) -> Any:
    return original(closed, replace(config, min_compaction_lag_ms=0), *bounds)
