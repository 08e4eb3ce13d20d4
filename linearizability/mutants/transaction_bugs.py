"""Bugs of transactions: in a coordinator's decisions, in a partition's transactional state, and in a group's pending offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from linearizability.mutants.registry import mutant
from reference.coordinator.transaction_state import State
from reference.node.markers import _Work
from reference.protocol.errors import ErrorCode, KafkaError
from reference.storage.last_stable import NOTHING_OPEN

CLASSIC = 1
"""The transaction version before KIP-890, in which the end of a transaction does not raise the epoch."""
GREATEST_EPOCH = 2**15 - 1


@mutant(
    "reference.coordinator.transaction_state:Transaction.begun_again",
    "InitProducerId gives the epoch of the session before: no producer is fenced.",
    caught_by=("TXN-02", "TXN-06", "TXV-12"),
    fuzz=True,
    workload="copy",
)
def epoch_kept_by_next_session(original: Any, transaction: Any, timeout_ms: int, expected: Any, now: int) -> Any:
    begun = original(transaction, timeout_ms, expected, now)
    return begun and replace(begun, epoch=max(transaction.epoch, 0))


@mutant(
    "reference.coordinator.transaction_state:Transaction.begun_again",
    "A producer that another one replaced gets the new epoch when it says who it is.",
    caught_by=("TXN-06",),
)
def replaced_producer_is_known(original: Any, transaction: Any, timeout_ms: int, expected: Any, now: int) -> Any:
    begun = original(transaction, timeout_ms, expected, now)
    return begun if expected is not None else replace(begun, last_epoch=transaction.epoch)


@mutant(
    "reference.coordinator.transaction_state:Transaction.with_partitions",
    "A transaction counts from the start of the one before.",
    caught_by=("TXN-22",),
)
def start_of_an_earlier_transaction(original: Any, transaction: Any, added: Any, version: int, now: int) -> Any:
    begun = original(transaction, added, version, now)
    return replace(begun, started_at=transaction.started_at if transaction.started_at >= 0 else now)


@mutant(
    "reference.coordinator.transaction_state:Transaction.begun_again",
    "A later InitProducerId does not change the transaction timeout.",
    caught_by=("TXN-26",),
)
def timeout_kept_by_next_session(original: Any, transaction: Any, timeout_ms: int, expected: Any, now: int) -> Any:
    return original(transaction, transaction.timeout_ms, expected, now)


@mutant(
    "reference.coordinator.transaction_state:Transaction.is_exhausted",
    "The last epoch, which is kept for fencing, is given out to producers.",
    caught_by=("TXN-15",),
)
def epoch_given_out_that_is_for_fencing(original: Any, transaction: Any) -> bool:
    return transaction.epoch >= GREATEST_EPOCH


@mutant(
    "reference.node.verification:Verification.is_enabled",
    "A transactional batch is appended although its partition was not added to the transaction.",
    caught_by=("TXN-16", "TXN-34", "TXN-36"),
    fuzz=True,
    nodes=3,
    workload="transactions",
)
def partitions_unverified(original: Any, verification: Any) -> bool:
    return False


@mutant(
    "reference.coordinator.transaction_endings:ending_before_kip_890",
    "EndTxn does not look at the producer's epoch.",
    caught_by=("TXN-02", "TXN-08"),
    fuzz=True,
    workload="copy",
)
def zombie_ends_transaction(original: Any, transaction: Any, identity: Any, committed: bool) -> Any:
    return original(transaction, identity._replace(epoch=transaction.epoch), committed)


@mutant(
    "reference.coordinator.transaction_state:Transaction.prepared",
    "EndTxn of KIP-890 leaves the epoch as it is: a late batch gets into the next transaction.",
    caught_by=("TXN-14", "TXN-28", "TXV-05"),
    fuzz=True,
    nodes=3,
    workload="transactions",
)
def epoch_kept_by_end(
    original: Any, transaction: Any, committed: bool, version: int, now: int, next_producer_id: int
) -> Any:
    return original(transaction, committed, min(version, CLASSIC), now, next_producer_id)


@mutant(
    "reference.coordinator.transaction_endings:ending",
    "EndTxn of KIP-890 that is sent again, for its answer was lost, is fenced.",
    caught_by=("TXN-14",),
    fuzz=True,
    workload="transactions",
)
def repeated_end_fenced(original: Any, transaction: Any, identity: Any, committed: bool) -> Any:
    if identity.epoch != transaction.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return original(transaction, identity, committed)


@mutant(
    "reference.coordinator.transaction_coordinator:TransactionCoordinator.timed_out",
    "A transaction whose producer is gone stays open for ever, and holds up every reader.",
    caught_by=("TXN-20", "TXN-23"),
    fuzz=True,
    workload="copy",
)
def never_timed_out(original: Any, coordinator: Any, now: int) -> list[str]:
    return []


@mutant(
    "reference.coordinator.transaction_coordinator:TransactionCoordinator.loaded",
    "A coordinator that loads its partition forgets the transactional ids whose transactions are open.",
    caught_by=("TXV-15",),
    fuzz=True,
    workload="copy",
)
def open_transactions_forgotten(original: Any, coordinator: Any, now: int) -> None:
    for id in coordinator.timed_out(1 << 62):
        del coordinator.transactions[id]
    original(coordinator, now)


@mutant(
    "reference.node.transaction_requests:_passes",
    "ListTransactions lists all transactional ids, whatever the filters say.",
    caught_by=("TXN-40", "TXN-41", "TXN-42"),
)
def transactions_listed_unfiltered(original: Any, transaction: Any, body: Any, pattern: Any, now: int) -> bool:
    return True


@mutant(
    "reference.node.transactional_produce:has_transactional_batches",
    "A transactional batch is taken without a transactional id in the request.",
    caught_by=("TXN-21",),
)
def transactional_id_not_asked_for(original: Any, body: Any) -> bool:
    return False


@mutant(
    "reference.node.markers:Markers._take_results",
    "The markers of a transaction are sent a second time a little later: before KIP-890 they end a part of the next one.",
    fuzz=True,
    workload="transactions",
)
def marker_written_twice(original: Any, markers: Any, work: Any, partitions: Any, results: Any, now: int) -> None:
    original(markers, work, partitions, results, now)
    sent = vars(markers).setdefault("sent_twice", set())
    if work not in sent:
        sent.add(work)
        markers._try_again(work, [*partitions], now)


@mutant(
    "reference.node.transactions:Transactions.join",
    "A partition that joins a transaction gets the marker of its commit at once: what is aborted later was visible before.",
    fuzz=True,
    workload="transactions",
)
def marker_before_decision(
    original: Any,
    transactions: Any,
    id: str,
    identity: Any,
    partitions: Any,
    version: int,
    now: int,
    *answered: Any,
    **more: Any,
) -> None:
    original(transactions, id, identity, partitions, version, now, *answered, **more)
    for index, coordinator in transactions.coordination.loaded():
        known = coordinator.transactions.get(id)
        if known is not None and known.state is State.ONGOING:
            work = _Work(index, coordinator, known.prepared(True, version, now))
            transactions.markers._try_again(work, [*partitions], now)


@mutant(
    "reference.protocol.records.control:EndTransaction.__new__",
    "The marker of an abort says that the transaction was committed.",
    caught_by=("TXV-02", "TXV-05", "TXV-07"),
    fuzz=True,
    workload="copy",
)
def aborted_marked_as_committed(original: Any, kind: Any, committed: bool, coordinator_epoch: int) -> Any:
    return original(kind, True, coordinator_epoch)


@mutant(
    "reference.storage.producer_state:ProducerState.first_unstable_offset",
    "Open transactions do not hold back the last stable offset.",
    caught_by=("TXV-01", "TXV-06", "FET-19"),
    fuzz=True,
    workload="copy",
)
def stable_up_to_high_watermark(original: Any, state: Any, high_watermark: int) -> int:
    return NOTHING_OPEN


@mutant(
    "reference.storage.producer_state:ProducerState.first_unstable_offset",
    "Of several open transactions the last one holds back the last stable offset, not the first.",
    caught_by=("TXV-06",),
    fuzz=True,
    workload="copy",
)
def stable_up_to_the_last_open(original: Any, state: Any, high_watermark: int) -> Any:
    return max(state._ongoing, default=original(state, high_watermark))


@mutant(
    "reference.storage.log:Log.aborted_transactions",
    "read_committed answers list no aborted transactions.",
    caught_by=("TXV-02", "FET-14"),
    fuzz=True,
    workload="copy",
)
def aborted_unlisted(original: Any, log: Any, start: int, end: int) -> list[Any]:
    return []


@mutant(
    "reference.storage.log:Log.aborted_transactions",
    "Aborted transactions are listed only if they end in the segment that is read.",
    caught_by=("TXV-13",),
    fuzz=True,
    workload="copy",
)
def aborted_of_one_segment(original: Any, log: Any, start: int, end: int) -> list[Any]:
    segment = max((each for each in log._segments if each.base_offset <= start), key=lambda each: each.base_offset)
    return [one for one in original(log, start, end) if one in segment.transaction_index.entries]


@mutant(
    "reference.coordinator.offsets:Offsets.end_transaction",
    "Offsets of an aborted transaction count.",
    caught_by=("TXV-08", "TXV-17"),
    fuzz=True,
    workload="copy",
)
def aborted_offsets_count(original: Any, offsets: Any, producer_id: int, committed: bool) -> None:
    original(offsets, producer_id, True)


@mutant(
    "reference.coordinator.offsets:Offsets.is_unstable",
    "OffsetFetch with require_stable reports the offset of before while a transaction has another one pending.",
    caught_by=("TXV-09", "TXV-18"),
    fuzz=True,
    workload="copy",
)
def pending_offsets_called_stable(original: Any, offsets: Any, group: str, place: Any) -> bool:
    return False


@mutant(
    "reference.coordinator.offsets:Offsets.end_transaction",
    "A transaction's offset counts with its marker, also over an offset that was committed later.",
    caught_by=("TXV-18",),
    fuzz=True,
    workload="copy",
)
def last_marker_wins(original: Any, offsets: Any, producer_id: int, committed: bool) -> None:
    for (group, place), _ in offsets._pending.get(producer_id, {}).items():
        if committed:
            offsets._committed.get(group, {}).pop(place, None)
    original(offsets, producer_id, committed)
