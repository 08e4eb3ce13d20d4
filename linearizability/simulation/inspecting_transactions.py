"""What transactions and producers look like to administrators, and what is refused to producers that err (TXN-*, IDM-*); see
`inspecting`. A transactional id of its own goes through its states; it writes no record that a consumer reads.
"""

from __future__ import annotations

import re
from typing import Any

from linearizability.client.requests import transactional_commit_request
from linearizability.simulation.inspecting import Chapter, Differs, Inspector, Part, Question, refusals, require_same
from linearizability.simulation.inspecting_groups import OF_RE2
from reference.coordinator.transaction_state import State, Transaction
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.list_transactions import ListTransactionsRequest

UNKNOWN, NOWHERE = "unknown", "nowhere"
TIMEOUT_MS = 60_000
PATTERNS = (
    ".*",
    "client.*",
    r"client[- ]\d+.*",
    "(?i)CLIENT.*",
    "shared|copier.*",
    "unknown",
    r"[[:alpha:]]+1",
    "[^c].*",
)
COMPLETE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


def listed_transactions(client: Inspector) -> Chapter:
    """A list has the transactional ids that pass all filters, each in its state, and no others."""
    number, shard = client.transaction_shard()
    some = [each.producer_id for each in shard.transactions.values()][:1]
    asked: list[dict[str, Any]] = [
        {},
        *({"state_filters": [state.title]} for state in State),
        {"state_filters": ["NoSuchState"]},
    ]
    asked += [{"producer_id_filters": some or [0]}, {"producer_id_filters": [1 << 40]}]
    asked += [{"transactional_id_pattern": pattern} for pattern in PATTERNS]
    asked += [{"state_filters": ["CompleteCommit", "Empty"], "producer_id_filters": some or [0]}]
    for filters in asked:
        answer = yield Question(ListTransactionsRequest(**filters), 2, number)
        require_same("the list's error", answer.error_code, E.NONE)
        listed = {
            each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states
        }
        expected = {
            id: (each.producer_id, each.state.title)
            for id, each in shard.transactions.items()
            if _passes(each, **filters)
        }
        require_same(f"transactions that pass {filters}", listed, expected)
        unknown = [each for each in filters.get("state_filters", ()) if each == "NoSuchState"]
        require_same(f"unknown filters of {filters}", answer.unknown_state_filters, unknown)
    duration = ListTransactionsRequest(duration_filter=1 << 50)
    answer = yield Question(duration, 2, number)
    require_same("transactions that are open for years", answer.transaction_states, [])
    yield from refusals(
        [(Question(ListTransactionsRequest(transactional_id_pattern="("), 2, number), E.INVALID_REGULAR_EXPRESSION)]
    )


def _passes(
    transaction: Transaction,
    state_filters: tuple[str, ...] = (),
    producer_id_filters: tuple[int, ...] = (),
    transactional_id_pattern: str | None = None,
) -> bool:
    pattern = OF_RE2.get(transactional_id_pattern or "", transactional_id_pattern)
    return (
        (not state_filters or transaction.state.title in state_filters)
        and (not producer_id_filters or transaction.producer_id in producer_id_filters)
        and (not pattern or re.fullmatch(pattern, transaction.id) is not None)
    )


def described_transactions(client: Inspector) -> Chapter:
    """Each transactional id is described as its coordinator keeps it; an unknown one is refused."""
    number, shard = client.transaction_shard()
    ids = [*shard.transactions]
    answer = yield Question(DescribeTransactionsRequest(transactional_ids=[*ids, UNKNOWN, ""]), 0, number)
    *described, missing, empty = answer.transaction_states
    require_same("errors", (missing.error_code, empty.error_code), (E.TRANSACTIONAL_ID_NOT_FOUND, E.INVALID_REQUEST))
    for id, each in zip(ids, described, strict=True):
        known: Transaction = shard.transactions[id]
        answered = (
            each.error_code,
            each.transactional_id,
            each.transaction_state,
            each.producer_id,
            each.producer_epoch,
        )
        require_same(f"{id} described", answered, (E.NONE, id, known.state.title, known.producer_id, known.epoch))
        places = sorted((topic.topic, index) for topic in each.topics for index in topic.partitions)
        require_same(f"partitions of {id}", places, sorted((p.topic, p.partition) for p in known.partitions))
        times = (each.transaction_timeout_ms, each.transaction_start_time_ms)
        require_same(f"times of {id}", times, (known.timeout_ms, known.started_at))


# ---- requests


def _begin(id: str | None, producer_id: int = -1, epoch: int = -1, **changed: Any) -> InitProducerIdRequest:
    usual: dict[str, Any] = {"transaction_timeout_ms": TIMEOUT_MS}
    return InitProducerIdRequest(transactional_id=id, producer_id=producer_id, producer_epoch=epoch, **usual | changed)


def _topics(*places: tuple[str, int]) -> list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]:
    return [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in places
    ]


def _add(id: str, producer_id: int, epoch: int, *places: tuple[str, int]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=_topics(*places),
    )


def _verify(id: str, producer_id: int, epoch: int, *places: tuple[str, int]) -> AddPartitionsToTxnRequest:
    asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=id, producer_id=producer_id, producer_epoch=epoch, verify_only=True, topics=_topics(*places)
    )
    return AddPartitionsToTxnRequest(transactions=[asked])


def _end(id: str, producer_id: int, epoch: int, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=id, producer_id=producer_id, producer_epoch=epoch, committed=committed)


def refused_requests(client: Inspector) -> Chapter:
    """What no coordinator grants, whatever it keeps; and each id of the run is refused to producers that are not its own."""
    number, shard = client.transaction_shard()
    place = client.cluster.partitions()[0]
    cases: list[tuple[Any, int, E]] = [
        (_begin(""), 4, E.INVALID_REQUEST),
        (_begin(None, 5), 4, E.INVALID_REQUEST),
        (_begin(UNKNOWN, 5), 4, E.INVALID_REQUEST),
        (_begin(UNKNOWN, epoch=0), 4, E.INVALID_REQUEST),
        (_begin(UNKNOWN, transaction_timeout_ms=0), 4, E.INVALID_TRANSACTION_TIMEOUT),
        (_begin(UNKNOWN, transaction_timeout_ms=900_001), 4, E.INVALID_TRANSACTION_TIMEOUT),
        (_add(UNKNOWN, 1, 0, place), 3, E.INVALID_PRODUCER_ID_MAPPING),
        (_add("", 1, 0, place), 3, E.INVALID_REQUEST),
        (_add(UNKNOWN, 1, 0, (NOWHERE, 0)), 3, E.UNKNOWN_TOPIC_OR_PARTITION),
        (_verify(UNKNOWN, 1, 0, place), 5, E.INVALID_PRODUCER_ID_MAPPING),
        (AddOffsetsToTxnRequest(transactional_id=UNKNOWN, producer_id=1, producer_epoch=0, group_id="g"), 4,
         E.INVALID_PRODUCER_ID_MAPPING),
        (_end(UNKNOWN, 1, 0), 5, E.INVALID_PRODUCER_ID_MAPPING),
        (_end(UNKNOWN, 1, 0), 3, E.INVALID_PRODUCER_ID_MAPPING),
        (_end("", 1, 0), 5, E.INVALID_REQUEST),
    ]  # fmt: skip
    for id, each in shard.transactions.items():
        if each.state in COMPLETE and 0 < each.epoch < 1_000:
            stranger, pid, epoch = each.producer_id + 1_000_000, each.producer_id, each.epoch
            cases += [
                (_begin(id, stranger, 0), 4, E.PRODUCER_FENCED),
                (_add(id, stranger, epoch, place), 3, E.INVALID_PRODUCER_ID_MAPPING),
                (_add(id, pid, epoch - 1, place), 3, E.PRODUCER_FENCED),
                (_add(id, pid, epoch - 1, place), 1, E.INVALID_PRODUCER_EPOCH),
                (_verify(id, pid, epoch - 1, place), 5, E.PRODUCER_FENCED),
                (_verify(id, pid, epoch, place), 5, E.TRANSACTION_ABORTABLE),
                (_end(id, stranger, epoch), 5, E.INVALID_PRODUCER_ID_MAPPING),
                (_end(id, pid, epoch + 1), 5, E.PRODUCER_FENCED),
                (_end(id, pid, epoch - 1), 3, E.PRODUCER_FENCED),
                (_end(id, pid, epoch), 5, E.INVALID_TXN_STATE),
            ]
    yield from refusals([(Question(body, version, number), code) for body, version, code in cases])


def a_transactional_id(client: Inspector) -> Chapter:
    """A new id: sessions fence each other, partitions join once, an end is repeated, and another outcome is refused."""
    number, shard = client.transaction_shard()
    id, place = client.scratch, client.cluster.partitions()[0]
    answer = yield Question(_begin(id), 4, number)
    pid, epoch = answer.producer_id, answer.producer_epoch
    require_same("a first session", (answer.error_code, epoch), (E.NONE, 0))
    answer = yield Question(_begin(id, pid, epoch), 4, number)
    require_same("a second session", (answer.error_code, answer.producer_id, answer.producer_epoch), (E.NONE, pid, 1))
    answer = yield Question(_begin(id), 4, number)
    require_same("a third session", (answer.error_code, answer.producer_id, answer.producer_epoch), (E.NONE, pid, 2))
    offsets = {place: 1}
    yield from refusals(
        (Question(body, version, number), code)
        for body, version, code in [
            (_begin(id, pid, 0), 4, E.PRODUCER_FENCED),
            (_begin(id, pid, 0), 3, E.INVALID_PRODUCER_EPOCH),
            (_add(id, pid, 1, place), 3, E.PRODUCER_FENCED),
            (_end(id, pid, 2), 3, E.INVALID_TXN_STATE),
            (_end(id, pid, 2, False), 3, E.INVALID_TXN_STATE),
            (_verify(id, pid, 2, place), 5, E.TRANSACTION_ABORTABLE),
            (_add(id, pid, 2, place), 3, E.NONE),
            (_add(id, pid, 2, place), 3, E.NONE),
            (_verify(id, pid, 2, place), 5, E.NONE),
            (_verify(id, pid, 1, place), 5, E.PRODUCER_FENCED),
        ]
    )
    require_same("the state after a partition joined", shard.transactions[id].state, State.ONGOING)
    yield from refusals([(Question(_end(id, pid, 2, False), 3, number), E.NONE)])
    answer = yield from _until_complete(number, id)
    state = (answer.transaction_state, answer.producer_id, answer.producer_epoch)
    require_same("the state after an abort", state, ("CompleteAbort", pid, 2))
    yield from refusals(
        (Question(body, version, number), code)
        for body, version, code in [
            (_end(id, pid, 2, False), 3, E.NONE),
            (_end(id, pid, 2, True), 3, E.INVALID_TXN_STATE),
            (_end(id, pid, 1, False), 3, E.PRODUCER_FENCED),
            (_end(id, pid, 2, True), 5, E.INVALID_TXN_STATE),
            (transactional_commit_request(id, (pid, 2), "", offsets), 3, E.INVALID_GROUP_ID),
        ]
    )
    answer = yield Question(_end(id, pid, 2, False), 5, number)  # an abort of a transaction without partitions
    ended = (answer.error_code, answer.producer_id, answer.producer_epoch)
    require_same("an abort that raises the epoch", ended, (E.NONE, pid, 3))
    yield from _until_complete(number, id)
    answer = yield Question(_end(id, pid, 2, False), 5, number)
    ended = (answer.error_code, answer.producer_id, answer.producer_epoch)
    require_same("the same abort again", ended, (E.NONE, pid, 3))


def _until_complete(number: int, id: str) -> Part:
    """Return the description of an id once its markers are written."""
    described: Any = None
    for _ in range(200):
        answer = yield Question(DescribeTransactionsRequest(transactional_ids=[id]), 0, number)
        described = answer.transaction_states[0]
        if described.transaction_state.startswith("Complete"):
            return described
    raise Differs(f"{id} is {described.transaction_state}, and its markers are not written")


CHAPTERS = (listed_transactions, described_transactions, refused_requests, a_transactional_id, listed_transactions)
