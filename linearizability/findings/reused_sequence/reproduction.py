"""One transactional producer of librdkafka, and brokers of which one is frozen for some seconds."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer, libversion

from linearizability.findings.reading import read
from linearizability.targets import open_target
from linearizability.workload.cluster import Coordinated, create_topic, find_coordinator

TOPIC, TRANSACTIONAL_ID = "orders", "till"
TIMEOUT_S = 60.0
CONTROLLER, NODES = 1, (1, 2, 3, 4)
SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "broker.session.timeout.ms": "30000",
}
"""With these settings transactions proceed, and no replica leaves the ISR, while the topic's two nodes are frozen."""
SOCKET_TIMEOUT_MS = 2000
"""socket.timeout.ms of the producer, a minute by default: the time after which it repeats a request without a response."""
SENT_WITHIN_S, GIVEN_UP_WITHIN_S = 3.0, 4.0


class Session:
    """The producer, and the outcomes of its records."""

    def __init__(self, bootstrap: str, seen: list[str]) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": TRANSACTIONAL_ID,
                "log_level": 0,
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            }
        )
        self._seen = seen
        self.acknowledged: dict[str, int] = {}
        """Value -> offset."""
        self._producer.init_transactions(TIMEOUT_S)

    def send(self, value: str, within_s: float) -> None:
        """Begin a transaction, and send a record, which may get no response."""
        self._producer.begin_transaction()
        self._producer.produce(TOPIC, value, partition=0, on_delivery=self._delivered)
        left = self._producer.flush(within_s)
        self._seen.append(f"begin, send {value}: {'no answer yet' if left else 'answered'}")

    def end(self, *, committed: bool) -> None:
        """End the transaction. Errors: KafkaException."""
        (self._producer.commit_transaction if committed else self._producer.abort_transaction)(TIMEOUT_S)
        self._seen.append(f"{'commit' if committed else 'abort'}: success")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        if error is None:
            self.acknowledged[value] = message.offset() or 0
        self._seen.append(f"{value}: {error.name() if error else f'acknowledged at offset {message.offset()}'}")


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen = [f"librdkafka {libversion()[0]}"]
    with open_target(f"mixed:{spec}{f',broker={spec}' * 3}", folder=folder, config=SETTINGS) as target:
        session = Session(target.bootstrap, seen)
        coordinator = find_coordinator(target.nodes, Coordinated("transaction", TRANSACTIONAL_ID))
        leader, follower, *_ = (node for node in NODES if node not in (CONTROLLER, coordinator))
        create_topic(target.nodes, TOPIC, partitions=1, replication_factor=2, configs={}, replicas=[leader, follower])
        target.pause(follower)
        session.send("a", SENT_WITHIN_S)
        target.pause(leader)
        time.sleep(GIVEN_UP_WITHIN_S)
        session.end(committed=False)
        target.resume(leader)
        target.resume(follower)
        session.send("b", TIMEOUT_S)
        session.end(committed=True)
        log, committed = (
            read(target.bootstrap, TOPIC, isolation) for isolation in ("read_uncommitted", "read_committed")
        )
    seen += [f"the log: {log}", f"read as committed: {committed}"]
    if "a" not in log.values():
        return None, [*seen, "the first record was not appended before the leader froze"]
    return "b" in session.acknowledged and "b" not in log.values(), seen
