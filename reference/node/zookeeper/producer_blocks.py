"""Blocks of producer ids that brokers allocate in ZooKeeper themselves, with inter-broker protocol 2.8.

Source: kafka.coordinator.transaction.ZkProducerIdManager of Apache Kafka 3.9.2.
"""

from __future__ import annotations

from reference.controller.producer_ids import BLOCK_SIZE
from reference.node.peers import Answered
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from reference.protocol.primitives import NodeId, ProducerId, TimestampMs
from reference.storage.log_directory import Logger
from reference.zookeeper import znodes
from reference.zookeeper.operations import Code, GetData, Result, SetData
from reference.zookeeper.session import Session


class ProducerBlocks:
    """Allocates blocks, as responses to AllocateProducerIds, which 2.8 does not have."""

    def __init__(self, node: NodeId, session: Session, log: Logger) -> None:
        self._node = node
        self._session = session
        self._log = log

    def ask(self, answered: Answered, now: TimestampMs) -> None:
        """Allocate the next block; the answer is None if another broker was faster, or ZooKeeper does not answer: then ask
        again."""

        def read(result: Result, at: TimestampMs) -> None:
            if result.code != Code.OK:
                answered(None, at)
                return
            try:
                first = znodes.decode_next_producer_id(znodes.PRODUCER_IDS, result.data)
            except znodes.DamagedZnode as error:
                self._log("error", f"{error}: no producer id is given out until it is mended")
                answered(None, at)
                return

            def written(outcome: Result, then: TimestampMs) -> None:
                found = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
                answered(found if outcome.code == Code.OK else None, then)

            block = znodes.encode_producer_block(self._node, first, ProducerId(first + BLOCK_SIZE - 1))
            # Conditional: two brokers that read the same block would give out the same ids.
            self._session.ask(SetData(znodes.PRODUCER_IDS, block, result.stat.version), written, at)

        self._session.ask(GetData(znodes.PRODUCER_IDS), read, now)
