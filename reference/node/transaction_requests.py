"""The requests of transactional producers to their coordinator. (TXN-01 to TXN-15)

The coordinator of the transactional id decides each request. The response is sent when the decision's records are committed; a
refusal changes nothing, and is sent at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reference.controller.topics import INTERNAL_TOPICS
from reference.coordinator.pattern_matching import Regex, compile_pattern
from reference.coordinator.transaction_coordinator import Decided, TransactionCoordinator
from reference.coordinator.transaction_sessions import NO_PRODUCER, Identity
from reference.coordinator.transaction_state import TRANSACTION_VERSION_2, State, TopicPartition, Transaction
from reference.node.internal_topics import OFFSETS_TOPIC
from reference.node.requests import Request
from reference.node.transactions import Transactions, Verdicts, after_append
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from reference.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from reference.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from reference.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from reference.protocol.primitives import TimestampMs, TransactionalId

FIRST_VERSION_WITH_FENCED = {22: 4, 24: 2, 25: 2, 26: 2}
"""API -> the first version with PRODUCER_FENCED; before, the error is INVALID_PRODUCER_EPOCH (TXN-06, TXN-08)."""
FIRST_VERSION_OF_BROKERS = 4
"""The first version of AddPartitionsToTxn that partition leaders send, for several transactions at once (KIP-890)."""
FIRST_END_WITH_BUMP = 5
"""The first version of EndTxn in which each end raises the epoch (KIP-890)."""

TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


def init_producer_id(
    transactions: Transactions, request: Request, body: InitProducerIdRequest, now: TimestampMs
) -> InitProducerIdResponse | None:
    """Begin a session of a transactional id (TXN-01 to TXN-06)."""
    id = body.transactional_id
    assert id is not None
    response = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    expected = Identity(body.producer_id, body.producer_epoch)
    # validate
    try:
        timeout_ms = _timeout(transactions, body)
    except KafkaError as error:
        response.error_code = error.code
        return response

    # fence, apply
    def decide(coordinator: TransactionCoordinator) -> Decided:
        decided = coordinator.new_session(id, timeout_ms, None if expected == NO_PRODUCER else expected, now)
        if decided.transaction.state is State.EMPTY:
            response.producer_id, response.producer_epoch = decided.transaction.producer_id, decided.transaction.epoch
        else:
            response.error_code = ErrorCode.CONCURRENT_TRANSACTIONS
        return decided

    def refuse(code: ErrorCode) -> None:
        response.error_code = code
        response.producer_id = response.producer_epoch = -1

    # respond, when the decision is committed
    return response if _is_answered(transactions, request, id, response, decide, refuse, now) else None


def _timeout(transactions: Transactions, body: InitProducerIdRequest) -> int:
    """The transaction timeout. Errors: KafkaError for a request that every coordinator refuses."""
    if not body.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return transactions.settings.timeout_of(body.transaction_timeout_ms, body.enable2_pc, body.keep_prepared_txn)


def end_txn(
    transactions: Transactions, request: Request, body: EndTxnRequest, now: TimestampMs
) -> EndTxnResponse | None:
    """Commit or abort a transaction (TXN-11 to TXN-14). The response is sent when the outcome is committed; the markers
    follow."""
    response = EndTxnResponse()
    # decode
    version = TRANSACTION_VERSION_2 if request.version >= FIRST_END_WITH_BUMP else 0

    # fence, apply
    def decide(coordinator: TransactionCoordinator) -> Decided | None:
        identity = Identity(body.producer_id, body.producer_epoch)
        decided, then = coordinator.end_transaction(body.transactional_id, identity, body.committed, version, now)
        if version >= TRANSACTION_VERSION_2:
            response.producer_id, response.producer_epoch = then
        return decided

    def refuse(code: ErrorCode) -> None:
        response.error_code = code
        response.producer_id = response.producer_epoch = -1

    # respond, when the decision is committed
    answered = _is_answered(transactions, request, body.transactional_id, response, decide, refuse, now)
    return response if answered else None


def add_offsets_to_txn(
    transactions: Transactions, request: Request, body: AddOffsetsToTxnRequest, now: TimestampMs
) -> AddOffsetsToTxnResponse | None:
    """Add the partition of a group's offsets to the transaction."""
    response = AddOffsetsToTxnResponse()
    index = transactions.context.coordinators.index_of(OFFSETS_TOPIC, body.group_id)
    partition = TopicPartition(OFFSETS_TOPIC, index)

    def decide(coordinator: TransactionCoordinator) -> Decided | None:
        identity = Identity(body.producer_id, body.producer_epoch)
        return coordinator.add_partitions(body.transactional_id, identity, [partition], 0, now)

    def refuse(code: ErrorCode) -> None:
        response.error_code = code

    answered = _is_answered(transactions, request, body.transactional_id, response, decide, refuse, now)
    return response if answered else None


def _is_answered(
    transactions: Transactions,
    request: Request,
    id: TransactionalId,
    response: InitProducerIdResponse | EndTxnResponse | AddOffsetsToTxnResponse,
    decide: Callable[[TransactionCoordinator], Decided | None],
    refuse: Callable[[ErrorCode], None],
    now: TimestampMs,
) -> bool:
    """Decide, write, and respond when the records are committed; True if the response is an error, to be sent at once."""
    try:
        if not id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        index, coordinator = transactions.coordination.shard_of(id)
        transactions.write(index, decide(coordinator), now)
    except KafkaError as error:
        refuse(_known_to(request, error.code))
        return True
    transactions.coordination.answer(index, request, response, now, lambda code: refuse(after_append(code)))
    return False


def _known_to(request: Request, code: ErrorCode) -> ErrorCode:
    """The error, replaced if the client's version does not have it."""
    if code is ErrorCode.PRODUCER_FENCED and request.version < FIRST_VERSION_WITH_FENCED[request.key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# ---- AddPartitionsToTxn


def add_partitions_to_txn(
    transactions: Transactions, request: Request, body: AddPartitionsToTxnRequest, now: TimestampMs
) -> AddPartitionsToTxnResponse | None:
    """Add partitions to a transaction: a client's request has one transaction, a partition leader's several (TXN-09, TXN-10)."""
    if request.version < FIRST_VERSION_OF_BROKERS:
        _add_for_client(transactions, request, body, now)
        return None
    if not body.transactions:
        return AddPartitionsToTxnResponse()
    _add_for_leader(transactions, request, body, now)
    return None


def _add_for_client(
    transactions: Transactions, request: Request, body: AddPartitionsToTxnRequest, now: TimestampMs
) -> None:
    def answered(verdicts: Verdicts, then: TimestampMs) -> None:
        results = _by_topic(body.v3_and_below_topics, verdicts, request)
        transactions.context.responder.respond(
            request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        )

    identity = Identity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    partitions = _partitions(body.v3_and_below_topics)
    id = body.v3_and_below_transactional_id
    transactions.join(id, identity, partitions, 0, now, answered, forbidden=INTERNAL_TOPICS)


def _add_for_leader(
    transactions: Transactions, request: Request, body: AddPartitionsToTxnRequest, now: TimestampMs
) -> None:
    results = [TransactionResult(transactional_id=each.transactional_id) for each in body.transactions]
    left = len(results)

    def add(asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, result: TransactionResult) -> None:
        def answered(verdicts: Verdicts, then: TimestampMs) -> None:
            nonlocal left
            result.topic_results = _by_topic(asked.topics, verdicts, request)
            left -= 1
            if not left:
                transactions.context.responder.respond(
                    request, AddPartitionsToTxnResponse(results_by_transaction=results)
                )

        id, identity = asked.transactional_id, Identity(asked.producer_id, asked.producer_epoch)
        if asked.verify_only:
            transactions.verify(id, identity, _partitions(asked.topics), now, answered)
        else:
            transactions.join(id, identity, _partitions(asked.topics), TRANSACTION_VERSION_2, now, answered)

    for asked, result in zip(body.transactions, results, strict=True):
        add(asked, result)


def _partitions(topics: Iterable[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _by_topic(
    topics: Iterable[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic], verdicts: Verdicts, request: Request
) -> list[TopicResult]:
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(
                    partition_index=index,
                    partition_error_code=_known_to(request, verdicts[TopicPartition(topic.name, index)]),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


# ---- DescribeTransactions and ListTransactions (TXN-22; KIP-664, KIP-994, KIP-1152)


_STATES = {state.title: state for state in State}

Described = DescribeTransactionsResponse.TransactionState
DescribedTopic = DescribeTransactionsResponse.TopicData
Listed = ListTransactionsResponse.TransactionState


def describe_transactions(
    transactions: Transactions, request: Request, body: DescribeTransactionsRequest, now: TimestampMs
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(transactions, id) for id in body.transactional_ids]
    )


def _describe(transactions: Transactions, id: TransactionalId) -> Described:
    described = Described(transactional_id=id)
    try:
        if not id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        _, coordinator = transactions.coordination.shard_of(id)
        if id not in coordinator.transactions:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except KafkaError as error:
        described.error_code = error.code
        return described
    transaction = coordinator.transactions[id]
    described.transaction_state = transaction.state.title
    described.transaction_timeout_ms = transaction.timeout_ms
    described.transaction_start_time_ms = transaction.started_at
    described.producer_id = transaction.producer_id
    described.producer_epoch = transaction.epoch
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    described.topics = [DescribedTopic(topic=name, partitions=indexes) for name, indexes in by_topic.items()]
    return described


def list_transactions(
    transactions: Transactions, request: Request, body: ListTransactionsRequest, now: TimestampMs
) -> ListTransactionsResponse:
    """The transactional ids of this node that match all filters; an empty filter matches all."""
    coordination = transactions.coordination
    if coordination.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    unknown = [name for name in dict.fromkeys(body.state_filters) if name not in _STATES]
    try:
        pattern = compile_pattern(body.transactional_id_pattern) if body.transactional_id_pattern else None
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    found = [
        Listed(transactional_id=each.id, producer_id=each.producer_id, transaction_state=each.state.title)
        for _, coordinator in coordination.loaded()
        for each in coordinator.transactions.values()
        if _passes(each, body, pattern, now)
    ]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _passes(transaction: Transaction, body: ListTransactionsRequest, pattern: Regex | None, now: TimestampMs) -> bool:
    if body.producer_id_filters and transaction.producer_id not in body.producer_id_filters:
        return False
    if body.state_filters and transaction.state.title not in body.state_filters:
        return False
    if body.duration_filter >= 0 and now - transaction.started_at <= body.duration_filter:
        return False
    return pattern is None or pattern.matches(transaction.id)
