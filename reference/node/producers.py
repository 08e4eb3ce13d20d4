"""Allocation of producer ids, and descriptions of partitions' producers. (IDM-*)"""

from __future__ import annotations

from collections.abc import Callable

from reference.controller.image import MetadataImage
from reference.controller.topic_names import validate_topic_name
from reference.node import transaction_requests
from reference.node.peers import AskController
from reference.node.replicas import Replicas
from reference.node.requests import Request
from reference.node.transactions import Transactions
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from reference.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from reference.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from reference.protocol.primitives import BrokerEpoch, NodeId, ProducerId, TimestampMs
from reference.protocol.schema import Message


class ProducerIds:
    """The unused part of the node's block of producer ids."""

    def __init__(
        self, node: NodeId, image: MetadataImage, broker_epoch: Callable[[], BrokerEpoch], ask: AskController
    ) -> None:
        self._node = node
        self._image = image
        self._broker_epoch = broker_epoch
        self._ask_controller = ask
        self._block = range(0)
        self._is_asking = False

    def next(self, now: TimestampMs) -> ProducerId:
        """A producer id that was never returned in this cluster.

        Errors: KafkaError COORDINATOR_LOAD_IN_PROGRESS while a block is requested: the client retries.
        """
        if not self._block:
            self._ask(now)
        if not self._block:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        id, self._block = ProducerId(self._block[0]), self._block[1:]
        return id

    def _ask(self, now: TimestampMs) -> None:
        def answered(answer: Message | None, then: TimestampMs) -> None:
            self._is_asking = False
            if isinstance(answer, AllocateProducerIdsResponse) and answer.error_code == ErrorCode.NONE:
                first = answer.producer_id_start
                self._block = range(first, first + answer.producer_id_len)

        if not self._is_asking:
            self._is_asking = True
            body = AllocateProducerIdsRequest(broker_id=self._node, broker_epoch=self._broker_epoch())
            self._ask_controller("producer-ids", body, answered, now)


def init_producer_id(
    transactions: Transactions,
    producer_ids: ProducerIds,
    request: Request,
    body: InitProducerIdRequest,
    now: TimestampMs,
) -> InitProducerIdResponse | None:
    """A new producer id with epoch 0, or a session of a transactional id (IDM-01, IDM-02)."""
    refused = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    if (body.producer_id == -1) != (body.producer_epoch == -1):
        refused.error_code = ErrorCode.INVALID_REQUEST
        return refused
    if body.transactional_id is not None:
        return transaction_requests.init_producer_id(transactions, request, body, now)
    try:
        return InitProducerIdResponse(producer_id=producer_ids.next(now), producer_epoch=0)
    except KafkaError as error:
        refused.error_code = error.code
        return refused


def describe_producers(
    replicas: Replicas, request: Request, body: DescribeProducersRequest, now: TimestampMs
) -> DescribeProducersResponse:
    """The idempotent producers that this replica of a partition remembers; it need not lead (IDM-14, IDM-18)."""
    response = DescribeProducersResponse()
    for topic in body.topics:
        results = [_describe(replicas, topic.name, index) for index in topic.partition_indexes]
        response.topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=results))
    return response


def _describe(replicas: Replicas, topic: str, index: int) -> DescribeProducersResponse.PartitionResponse:
    result = DescribeProducersResponse.PartitionResponse(partition_index=index)
    try:
        validate_topic_name(topic)
        partition = replicas.partition(topic, index)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    result.active_producers = [
        DescribeProducersResponse.ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.current_transaction_start_offset,
        )
        for each in partition.log.active_producers()
    ]
    return result
