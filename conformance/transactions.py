"""A transactional producer with the protocol before KIP-890: partitions are added first, the epoch does not change.

Every Kafka since 2.4 serves it, for any transaction.version. For requirements that need transactions but do not judge them.
"""

from __future__ import annotations

from typing import Any

from conformance.answers import error_name, only
from conformance.batches import CONTROL, TRANSACTIONAL, Record, batch, batches
from conformance.broker import RETRIABLE, Broker
from conformance.steps import refused, refused_by_epoch
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import TRANSACTION, Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.schema import Message

ADD_PARTITIONS_VERSION, PRODUCE_VERSION, END_VERSION = 3, 11, 4
"""The last versions of AddPartitionsToTxn, Produce and EndTxn in which clients add partitions themselves and keep their
epoch."""
NOT_YET = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""The errors of a coordinator that is loading, or still writes the markers of the transaction before."""


class TransactionalProducer:
    """One transactional id with its producer id and epoch. Skips where the target lacks transactions."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.transactional_id = broker.unused_name("txn")
        for request in (AddPartitionsToTxnRequest, EndTxnRequest):
            broker.versions_of(request)
        self._coordinator = broker.coordinator(self.transactional_id, TRANSACTION)
        self.session = ProducerSession(self.transactional_id)
        answer = self._ask(self.session.begin())
        self.session.become(answer.producer_id, answer.producer_epoch)
        self._added: dict[tuple[Topic, int], int] = {}
        """The partitions of the open transaction, with the log end when they were added."""

    @property
    def id(self) -> int:
        """The producer id."""
        return self.session.identity[0]

    def append(self, topic: Topic, *written: Record | bytes, partition: int = 0) -> int:
        """Produce records in the open transaction, or in a new one, and return the base offset."""
        key = topic, partition
        if key not in self._added:
            self._add(topic, partition)
        data = batch(
            *written,
            attributes=TRANSACTIONAL,
            producer_id=self.id,
            producer_epoch=self.session.identity[1],
            base_sequence=self.session.sequences.get(key, 0),
        )
        version = self._at_most(ProduceRequest, PRODUCE_VERSION)
        with refused_by_epoch("TXN-01"):
            base = self.broker.append(
                topic, data, partition=partition, version=version, transactional_id=self.transactional_id
            )
        self.session.appended(key, len(written))
        return base

    def end(self, *, committed: bool) -> None:
        """Commit or abort the transaction, and wait until the markers are in all its partitions."""
        self._ask(self.session.end(committed), self._at_most(EndTxnRequest, END_VERSION))
        for (topic, partition), start in self._added.items():
            self.broker.eventually(
                lambda topic=topic, partition=partition, start=start: self._is_marked(topic, partition, start),
                f"the transaction's marker is in {topic.name}-{partition}",
            )
        self._added.clear()

    def commit(self) -> None:
        """Commit the transaction."""
        self.end(committed=True)

    def abort(self) -> None:
        """Abort the transaction."""
        self.end(committed=False)

    def _add(self, topic: Topic, partition: int) -> None:
        request = self.session.add_partitions([(topic.name, partition)])

        def added() -> bool:
            version = self._at_most(AddPartitionsToTxnRequest, ADD_PARTITIONS_VERSION)
            answer = self.broker.call(request, version, to=self._coordinator)
            results = only(answer.results_by_topic_v3_and_below, "topic in the answer").results_by_partition
            return _agreed("AddPartitionsToTxn", only(results, "partition in the answer").partition_error_code)

        with refused_by_epoch("TXN-29"):
            self.broker.eventually(added, f"{topic.name}-{partition} is in the transaction")
        self._added[topic, partition] = self.broker.end_offset(topic, partition)

    def _at_most(self, request: type[Message], version: int) -> int:
        return min(version, self.broker.version_for(request))

    def _is_marked(self, topic: Topic, partition: int, start: int) -> bool:
        log = batches(self.broker.log(topic, partition=partition, offset=start))
        return any(one.attributes & CONTROL and one.producer_id == self.id for one in log)

    def _ask(self, request: Any, version: int | None = None) -> Any:
        def agreed() -> Any:
            answer = self.broker.call(request, version, to=self._coordinator)
            return answer if _agreed(type(request).__name__, answer.error_code) else None

        return self.broker.eventually(agreed, f"{type(request).__name__} is agreed to")


def _agreed(what: str, code: int) -> bool:
    if code in NOT_YET:
        return False
    if code != ErrorCode.NONE:
        raise refused(f"{what} was answered with {error_name(code)}", code)
    return True
