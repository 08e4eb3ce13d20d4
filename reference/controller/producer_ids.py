"""AllocateProducerIds: blocks of producer ids, each allocated once in a cluster.

Source: KIP-730; org.apache.kafka.controller.ProducerIdControlManager.
"""

from __future__ import annotations

from reference.controller.brokers import check_broker_epoch
from reference.controller.decision import Decision
from reference.controller.image import MetadataImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord

BLOCK_SIZE = 1000
"""The number of producer ids in a block."""

MAX_PRODUCER_ID = (1 << 63) - 1


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """Allocate the next block to the broker, which may use it once the record is committed.

    Errors: KafkaError STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR if no block is left.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    start = image.next_producer_id
    if start > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds: the next block passes int64.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + BLOCK_SIZE
    )
    return Decision([record], AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE))
