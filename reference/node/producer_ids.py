"""The producer ids that this node may give out: blocks of them, asked of the controller. (IDM-01)"""

from __future__ import annotations

from collections.abc import Callable

from reference.controller.image import MetadataImage
from reference.node.peers import AskController
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from reference.protocol.primitives import NodeId, ProducerId, TimestampMs
from reference.protocol.schema import Message


class ProducerIds:
    """What is left of the node's block."""

    def __init__(self, node: NodeId, image: MetadataImage, broker_epoch: Callable[[], int], ask: AskController) -> None:
        self._node = node
        self._image = image
        self._broker_epoch = broker_epoch
        self._ask_controller = ask
        self._block = range(0)
        self._is_asking = False

    def next(self, now: TimestampMs) -> ProducerId:
        """A producer id that no session of this cluster had before.

        Errors: KafkaError COORDINATOR_LOAD_IN_PROGRESS while a block is asked for: the client comes again.
        """
        if not self._block:
            self._ask(now)
        if not self._block:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        id, self._block = self._block[0], self._block[1:]
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
