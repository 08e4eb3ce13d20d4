"""What a coordinator tells of its transactions. (TXN-22; KIP-664, KIP-994, KIP-1152)"""

from __future__ import annotations

from reference.coordinator.pattern_matching import Regex, compile_pattern
from reference.coordinator.transaction_state import State, Transaction
from reference.node.requests import Request
from reference.node.transactions import Transactions
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from reference.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from reference.protocol.primitives import TimestampMs, TransactionalId

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
    """The transactional ids of this node that pass all filters; a filter that is empty lets everything pass."""
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
