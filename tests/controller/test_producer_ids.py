"""Allocation of blocks of producer ids: stale brokers, and the last block."""

import pytest

from reference.controller.producer_ids import MAX_PRODUCER_ID, allocate_producer_ids
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from reference.protocol.primitives import NodeId, ProducerId
from tests.controller.cluster import ControlledCluster


@pytest.mark.parametrize(
    ("next_id", "epoch_step", "code"),
    [
        (0, 1, ErrorCode.STALE_BROKER_EPOCH),
        (MAX_PRODUCER_ID - 999, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (MAX_PRODUCER_ID - 1000, 0, None),
    ],
)
def test_refusals(next_id: int, epoch_step: int, code: ErrorCode | None) -> None:
    cluster = ControlledCluster()
    cluster.start(0)
    cluster.image.next_producer_id = ProducerId(next_id)
    request = AllocateProducerIdsRequest(broker_id=0, broker_epoch=cluster.image.brokers[NodeId(0)].epoch + epoch_step)
    if code is None:
        assert allocate_producer_ids(cluster.image, request).response.producer_id_start == next_id
        return
    with pytest.raises(KafkaError) as caught:
        allocate_producer_ids(cluster.image, request)
    assert caught.value.code == code
