"""Brokers for the tests of client code: the reference as a process on this machine, faults by method call, and a verdict.

    def test_no_order_is_lost(tidegauge_cluster, tidegauge_history):        # fixtures of the pytest plugin
        producing = tidegauge_history.producer()
        with producing.sending("orders", 0, "order-1") as sent:             # around the client's own call
            sent.offset = my_client.send_and_wait("orders", b"order-1", partition=0).offset
        with tidegauge_history.fault(tidegauge_cluster, "kill", 1):         # kill -9 node 1; back at the end of the block
            ...
        tidegauge_history.expect_valid()                                    # reads the topics to their end, and judges

    with reference_broker(nodes=3, config={"min.insync.replicas": "2"}) as broker:   # without pytest
        broker.bootstrap; broker.kill(2); broker.restart(2)

A broker is a `linearizability.targets.Target`: its methods are the faults. Serving needs nothing beyond the base installation;
histories need the extra `check`. docs/testing.md has a complete example and says how this compares with a container.

Nothing of the other packages is imported before it is used: pytest loads the plugin for every project of the environment, and
one that has a package of its own named `reference` must find that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from linearizability.history.contract import Contract
    from linearizability.history.operations import Key, Value
    from linearizability.history.recorder import Recorder
    from linearizability.pipeline.verdict import Judgement
    from linearizability.targets import Target

FAULTS = {"kill": "restart", "stop": "restart", "pause": "resume"}
"""What hurts a node -> what ends it."""
RUN = "test"
DRAIN_WITHIN_S = 30.0
REPLICATED = {
    "default.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.replication.factor": "3",
    "broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500",
}  # fmt: skip
"""Topics of a cluster of three are replicated, and a node that is killed is missed sooner than after Kafka's nine seconds."""


@contextmanager
def reference_broker(
    nodes: int = 1, *, config: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[Target]:
    """The reference broker, or a cluster of it, until the end of the block. `config` are broker properties by Kafka's names."""
    from linearizability.targets import open_target

    with tempfile.TemporaryDirectory(prefix="tidegauge-") as temporary:
        given = (REPLICATED if nodes >= 3 else {}) | dict(config or {})
        with open_target(f"reference:{nodes}", folder=folder or Path(temporary), config=given) as target:
            yield target


class Sent:
    """A send under way: its test writes the offset here, where the client reports it."""

    offset: int | None = None


class Producing:
    """A client that sends: one process of the history."""

    def __init__(self, recorder: Recorder, topics: dict[str, int]) -> None:
        self.recorder = recorder
        self.topics = topics

    @contextmanager
    def sending(self, topic: str, partition: int, value: bytes | str | int) -> Iterator[Sent]:
        """Around one send. An exception leaves its outcome unknown; values are unique in their partition."""
        from linearizability.history.operations import send

        self.topics[topic] = max(self.topics.get(topic, 0), partition + 1)
        key, sent = f"{topic}-{partition}", Sent()
        operation = self.recorder.invoke("send", [send(key, _identity(value))])
        try:
            yield sent
        except BaseException as error:
            self.recorder.info(operation, error=type(error).__name__)
            raise
        self.recorder.ok(operation, [send(key, _identity(value), sent.offset)])


class Polled:
    """A poll under way: its test adds each record that the client returns."""

    def __init__(self) -> None:
        self.records: dict[Key, list[tuple[Value, ...]]] = {}

    def add(self, topic: str, partition: int, offset: int, value: bytes | str | int) -> None:
        self.records.setdefault(f"{topic}-{partition}", []).append((offset, _identity(value)))


class Consuming:
    """A client that reads partitions: one process of the history."""

    def __init__(self, recorder: Recorder, topic: str, partitions: tuple[int, ...]) -> None:
        self.recorder = recorder
        recorder.ok(recorder.invoke("assign", keys=[f"{topic}-{partition}" for partition in partitions]))

    @contextmanager
    def polling(self) -> Iterator[Polled]:
        """Around one poll."""
        from linearizability.history.operations import poll

        polled = Polled()
        operation = self.recorder.invoke("poll", [poll()])
        try:
            yield polled
        except BaseException as error:
            self.recorder.info(operation, error=type(error).__name__)
            raise
        self.recorder.ok(operation, [poll(polled.records)])


class History:
    """What the clients of one test saw, and the judgement of it."""

    def __init__(self, broker: Target, folder: Path, contract: Contract | None = None) -> None:
        """`contract` says what was asked for; without one: acks=all, idempotence, and the replicas that the broker can have."""
        from linearizability.history.contract import Contract

        replicas = min(len(broker.nodes), 3)
        self.contract = contract or Contract(replication_factor=replicas, min_isr=2 if replicas == 3 else 1)
        self.broker, self.folder = broker, folder
        self.topics: dict[str, int] = {}
        self.recorders: list[Recorder] = []

    def _recorder(self) -> Recorder:
        from linearizability.history.recorder import Recorder

        made = Recorder.open(self.folder, process=len(self.recorders), contract=self.contract, run=RUN)
        self.recorders.append(made)
        return made

    def producer(self) -> Producing:
        """A client that sends. A client that is started again is another one."""
        return Producing(self._recorder(), self.topics)

    def consumer(self, topic: str, *partitions: int) -> Consuming:
        """A client that reads these partitions (0 where none is named) from their start."""
        return Consuming(self._recorder(), topic, partitions or (0,))

    @contextmanager
    def fault(self, broker: Target, name: Literal["kill", "stop", "pause"], node: int) -> Iterator[None]:
        """Hurt a node, and bring it back at the end of the block."""
        marks = self._recorder()
        marks.mark("fault", name=name, node=node)
        getattr(broker, name)(node)
        try:
            yield
        finally:
            getattr(broker, FAULTS[name])(node)
            marks.mark("heal", name=name, node=node)

    def judge(self) -> Judgement:
        """Read every topic to its end, and judge. No client may record any more."""
        from linearizability.history.recorder import Recorder
        from linearizability.pipeline.engine import check
        from linearizability.workload.drain import drain_topic

        for number, (topic, partitions) in enumerate(self.topics.items()):
            process = len(self.recorders) + number
            with Recorder.open(self.folder, process=process, contract=self.contract, run=RUN) as recorder:
                bootstrap, contract = self.broker.bootstrap, self.contract
                drain_topic(bootstrap, topic, partitions, recorder, contract, within_s=DRAIN_WITHIN_S)
        for recorder in self.recorders:
            recorder.close()
        return next(iter(check([self.folder], engine="local")))

    def expect_valid(self) -> Judgement:
        """Fail the test where the history is not valid; unknown is not valid."""
        found = self.judge()
        if found.verdict != "valid":
            words = [*found.in_words(), *found.reasons, *(anomaly.text for anomaly in found.witnesses()[:3])]
            raise AssertionError(f"the history in {self.folder} is {found.verdict}: " + "; ".join(words))
        return found


def _identity(value: bytes | str | int) -> Value:
    """The value as the final read of a topic takes it from a record."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return int(text) if text.isdigit() else text
