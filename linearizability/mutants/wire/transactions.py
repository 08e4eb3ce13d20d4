"""Lies of transaction coordinators."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.wire.proxy import Exchange
from linearizability.mutants.wire.rewriting import (
    Lie,
    asks,
    both,
    errors,
    first_missing,
    last_missing,
    put,
    replied,
    shared,
)
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

PRODUCER, ADD, OFFSETS, END, COMMIT, REPORT, LIST, MARK, PRODUCE = (
    "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "DescribeTransactions",
    "ListTransactions", "WriteTxnMarkers", "Produce",
)  # fmt: skip


def transactional(request: Any) -> bool:
    """Whether InitProducerId has a transactional id."""
    return request.transactional_id is not None


def added(exchange: Exchange, message: Any) -> AddPartitionsToTxnResponse:
    """A response that reports all partitions of the request as added (below v4)."""
    topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    partition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            topic(name=t.name, results_by_partition=[partition(partition_index=p) for p in t.partitions])
            for t in message.v3_and_below_topics
        ]
    )


def committed(exchange: Exchange, message: Any) -> TxnOffsetCommitResponse:
    """A response that reports all offsets of the request as added to the transaction."""
    topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
    return TxnOffsetCommitResponse(
        topics=[
            topic(name=t.name, partitions=[partition(partition_index=p.partition_index) for p in t.partitions])
            for t in message.topics
        ]
    )


# fmt: off
LIES = [
    Lie("session-epoch-plus-one", PRODUCER, "a session's epoch is reported one too high", "TXN-01 TXN-02 TXN-06 TXN-34", answer=asks(transactional, put("producer_epoch", lambda epoch: epoch + 1 if epoch >= 0 else epoch))),
    Lie("session-epoch-0", PRODUCER, "a session's epoch is reported as 0 always", "TXN-02 TXN-05 TXN-06 TXN-29 TXN-34", answer=asks(transactional, put("producer_epoch", lambda epoch: min(epoch, 0)))),
    Lie("empty-transactional-id", PRODUCER, "an empty transactional id bears no error", "TXN-03", answer=asks(lambda r: r.transactional_id == "", errors(E.INVALID_REQUEST, 0))),
    Lie("transaction-timeout-unchecked", PRODUCER, "any transaction timeout is taken", "TXN-04", ask=put("transaction_timeout_ms", lambda ms: min(max(ms, 1000), 60_000))),
    Lie("transaction-timeout-error-other", PRODUCER, "INVALID_TRANSACTION_TIMEOUT is reported as INVALID_REQUEST", "TXN-04", answer=errors(E.INVALID_TRANSACTION_TIMEOUT, E.INVALID_REQUEST)),
    Lie("open-transaction-unnoticed", PRODUCER, "CONCURRENT_TRANSACTIONS is reported as no error", "TXN-05", answer=errors(E.CONCURRENT_TRANSACTIONS, 0)),
    Lie("zombie-initialises", PRODUCER, "PRODUCER_FENCED is reported as no error", "TXN-06 TXN-15 TXN-23", answer=errors(E.PRODUCER_FENCED, 0, E.INVALID_PRODUCER_EPOCH, 0)),
    Lie("identity-ignored", PRODUCER, "InitProducerId does not look at who asks", "TXN-06 IDM-02", ask=both(put("producer_id", -1), put("producer_epoch", -1)), versions="3+"),
    Lie("unknown-id-adds", ADD, "INVALID_PRODUCER_ID_MAPPING is reported as no error", "TXN-07 TXN-08", answer=errors(E.INVALID_PRODUCER_ID_MAPPING, 0)),
    Lie("unknown-id-ends", END, "INVALID_PRODUCER_ID_MAPPING is reported as INVALID_TXN_STATE", "TXN-08", answer=errors(E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_TXN_STATE)),
    Lie("unknown-id-adds-offsets", OFFSETS, "INVALID_PRODUCER_ID_MAPPING is reported as no error", "TXN-51", answer=errors(E.INVALID_PRODUCER_ID_MAPPING, 0)),
    Lie("zombie-adds-offsets", OFFSETS, "PRODUCER_FENCED is reported as no error", "TXN-51", answer=errors(E.PRODUCER_FENCED, 0)),
    Lie("zombie-adds", ADD, "PRODUCER_FENCED is reported as no error", "TXN-08 TXN-02", answer=errors(E.PRODUCER_FENCED, 0)),
    Lie("zombie-ends", END, "PRODUCER_FENCED is reported as no error", "TXN-08 TXN-02 TXN-15 TXN-20 TXN-23", answer=errors(E.PRODUCER_FENCED, 0)),
    Lie("zombie-ends-with-old-error", END, "PRODUCER_FENCED is reported as INVALID_PRODUCER_EPOCH", "", answer=errors(E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH), unseen="Java's producer takes both for the same (TransactionManager.EndTxnHandler); TXN-08 and TXN-02 tolerate it"),
    Lie("add-not-attempted-unnoticed", ADD, "OPERATION_NOT_ATTEMPTED is reported as no error", "TXN-09", answer=errors(E.OPERATION_NOT_ATTEMPTED, 0)),
    Lie("add-unknown-unnoticed", ADD, "an unknown partition is reported as not attempted", "TXN-09", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, E.OPERATION_NOT_ATTEMPTED)),
    Lie("add-not-done", ADD, "partitions are not added", "TXN-16 TXN-29 TXN-30", ask=replied(added), versions="0-3"),
    Lie("end-before-begin", END, "INVALID_TXN_STATE is reported as no error", "TXN-11 TXN-28 TXN-12", answer=errors(E.INVALID_TXN_STATE, 0)),
    Lie("commit-aborts", END, "a commit aborts", "TXV-02 TXN-28 TXV-05 TXN-12 TXN-11", ask=put("committed", False)),
    Lie("abort-commits", END, "an abort commits", "TXV-02 TXN-28 TXV-05 TXN-12 TXN-11", ask=put("committed", True)),
    Lie("end-without-epoch", END, "EndTxn v5 gives the epoch of before", "TXN-14 TXN-11", answer=put("producer_epoch", lambda epoch: epoch - 1), versions="5+"),
    Lie("end-without-id", END, "EndTxn v5 gives no producer id", "TXN-14 TXN-32", answer=put("producer_id", -1), versions="5+"),
    Lie("end-repeated-fails", END, "CONCURRENT_TRANSACTIONS is reported as INVALID_TXN_STATE", "", answer=errors(E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE), unseen="said only while the markers are written: one node is done before a client can ask again, TXN-46 asks three"),
    Lie("write-outside-unnoticed", PRODUCE, "INVALID_TXN_STATE is reported as no error", "TXN-16 TXN-19", answer=errors(E.INVALID_TXN_STATE, 0)),
    Lie("write-without-id-unnoticed", PRODUCE, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED is reported as no error", "TXN-21", answer=errors(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0)),
    Lie("write-of-unknown-id", PRODUCE, "INVALID_PRODUCER_ID_MAPPING is reported as INVALID_TXN_STATE", "TXN-50", answer=errors(E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_TXN_STATE)),
    Lie("txn-commit-forgotten", COMMIT, "every TxnOffsetCommit is agreed to, and none is done", "TXV-08 TXV-17 TXV-18 TXN-18 TXN-20 TXN-34 TXN-36 TXN-37 TXN-38 OFF-17 ACL-24 ACL-25 ACL-26", ask=replied(committed), versions="0-5"),
    Lie("txn-commit-of-zombie", COMMIT, "INVALID_PRODUCER_EPOCH is reported as no error", "TXN-34 TXN-02 TXN-20", answer=errors(E.INVALID_PRODUCER_EPOCH, 0)),
    Lie("txn-commit-not-added", COMMIT, "INVALID_TXN_STATE is reported as no error", "TXN-36", answer=errors(E.INVALID_TXN_STATE, 0)),

    Lie("transaction-not-found-unnoticed", REPORT, "TRANSACTIONAL_ID_NOT_FOUND is reported as no error", "TXN-22 TXN-39", answer=errors(E.TRANSACTIONAL_ID_NOT_FOUND, 0)),
    Lie("transaction-always-empty", REPORT, "an open transaction is reported as Empty", "TXN-22", answer=put("transaction_states.transaction_state", {"Ongoing": "Empty"})),
    Lie("complete-is-empty", REPORT, "a complete transaction is reported as Empty", "TXN-22 TXN-29", answer=put("transaction_states.transaction_state", {"CompleteCommit": "Empty", "CompleteAbort": "Empty"})),
    Lie("transaction-timeout-reported-wrong", REPORT, "the timeout is reported in seconds", "TXN-22 TXN-26", answer=put("transaction_states.transaction_timeout_ms", lambda ms: ms // 1000)),
    Lie("transaction-start-not-reported", REPORT, "an open transaction has no start", "TXN-22", answer=put("transaction_states.transaction_start_time_ms", -1)),
    Lie("transaction-epoch-reported-wrong", REPORT, "the epoch is reported one too high", "TXN-22", answer=put("transaction_states.producer_epoch", lambda epoch: epoch + 1)),
    Lie("transaction-partitions-not-reported", REPORT, "an open transaction has no partitions", "TXN-22", answer=put("transaction_states.topics", [])),
    Lie("transaction-partition-missing", REPORT, "the last of several partitions is not reported", "TXN-22", answer=last_missing("transaction_states.topics.partitions")),
    Lie("described-ids-missing", REPORT, "the last of several transactional ids is not reported", "TXN-39", answer=last_missing("transaction_states")),
    Lie("described-ids-share-error", REPORT, "one transactional id's error is given for all", "TXN-39", answer=shared("transaction_states")),
    Lie("transaction-not-listed", LIST, "the first transactional id is not listed", "TXN-40 TXN-41 TXN-42", answer=first_missing("transaction_states")),
    Lie("transactions-not-listed", LIST, "no transactional id is listed", "TXN-40 TXN-41 TXN-42", answer=put("transaction_states", [])),
    Lie("transaction-states-ignored", LIST, "transactional ids of all states are listed", "TXN-40", ask=put("state_filters", [])),
    Lie("transaction-producers-ignored", LIST, "transactional ids of all producers are listed", "TXN-40", ask=put("producer_id_filters", [])),
    Lie("unknown-states-not-reported", LIST, "unknown states are not reported back", "TXN-40", answer=put("unknown_state_filters", [])),
    Lie("duration-ignored", LIST, "the duration is not looked at", "TXN-41", ask=put("duration_filter", -1), versions="1+"),
    Lie("pattern-ignored", LIST, "the pattern is not looked at", "TXN-42", ask=put("transactional_id_pattern", None), versions="2+"),
    Lie("pattern-unchecked", LIST, "INVALID_REGULAR_EXPRESSION is reported as no error", "TXN-42", answer=errors(E.INVALID_REGULAR_EXPRESSION, 0)),
    Lie("marker-of-old-epoch", MARK, "INVALID_PRODUCER_EPOCH is reported as no error", "TXN-44", answer=errors(E.INVALID_PRODUCER_EPOCH, 0)),
    Lie("markers-turned", MARK, "markers commit instead of aborting", "TXN-44", ask=put("markers.transaction_result", lambda committed: not committed)),
]
# fmt: on

__all__ = ["LIES"]
