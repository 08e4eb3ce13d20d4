"""Two clusters side by side while their leaders go away: how long until another leads, and how long no record is acknowledged.

Both have the same timeouts (`FAST_FAILOVER`, as hunts have) and the same client: an idempotent librdkafka producer that
sends one record every few milliseconds to one partition, with acks=all. A blow falls on that partition's leader; what is
measured is counted from it. In the end everything is read: an acknowledged record that is not there, or is there twice, is
told, for a fast failover that loses records is none.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linearizability.faults.plan import FAST_FAILOVER
from linearizability.targets import Target, TargetError, open_target
from linearizability.workload.cluster import ClusterView, create_topic, look

TOPIC = "failover"
SEND_EVERY_S = 0.005
NEW_LEADER_WITHIN_S = 60.0
ACKNOWLEDGED_WITHIN_S = 60.0
WHOLE_WITHIN_S = 120.0
STEADY_S = 2.0
"""How long records flow undisturbed before a blow, and after the cluster is whole again."""
LOOK_EVERY_S = 0.02
CLIENT = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "message.timeout.ms": 120_000,
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}

Progress = Callable[[str], None]
Blow = Callable[[Target, int], None]

BLOWS: dict[str, tuple[Blow, Blow]] = {
    "kill": (lambda target, node: target.kill(node), lambda target, node: target.restart(node)),
    "stop": (lambda target, node: target.stop(node), lambda target, node: target.restart(node)),
    "freeze": (lambda target, node: target.pause(node), lambda target, node: target.resume(node)),
}
"""What befalls the leader, and what ends it: kill -9, SIGTERM (it hands over first), SIGSTOP (its connections stay open)."""


class Stream:
    """One producer, and when each of its records was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, **CLIENT})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="failover stream")
        self._lock = threading.Lock()
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self.times: list[float] = []

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            try:
                self._producer.produce(TOPIC, str(number), partition=0, on_delivery=self._collector(number))
                number += 1
            except BufferError:
                pass
            self._producer.poll(0)
            self._ending.wait(SEND_EVERY_S)
        self._producer.flush(ACKNOWLEDGED_WITHIN_S)

    def _collector(self, number: int) -> Callable[[object, object], None]:
        def delivered(error: object, _: object) -> None:
            with self._lock:
                if error is None:
                    self.acknowledged.append(number)
                    self.times.append(time.monotonic())
                else:
                    self.failed.append(str(error))

        return delivered

    def await_acknowledgement(self, since: float) -> None:
        """Wait for a record that is acknowledged after `since`. Errors: TargetError."""
        until = time.monotonic() + ACKNOWLEDGED_WITHIN_S
        while not self.times or self.times[-1] <= since:
            if time.monotonic() > until:
                raise TargetError(f"nothing was acknowledged within {ACKNOWLEDGED_WITHIN_S:.0f} s")
            time.sleep(LOOK_EVERY_S)

    def longest_gap_s(self, since: float) -> float:
        """The longest time between two acknowledgements that follow each other, of which the second came after `since`."""
        with self._lock:
            times = list(self.times)
        return max(b - a for a, b in itertools.pairwise(times) if b > since)


@dataclass
class Side:
    """One of the two clusters, its stream, and what was measured on it."""

    target: Target
    stream: Stream
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def strike(self, blow: str) -> dict[str, float]:
        """One blow on the leader of the partition, measured; the cluster is whole again afterwards. Errors: TargetError."""
        begin, end = BLOWS[blow]
        self.await_whole()
        time.sleep(STEADY_S)
        leader = self.view().partitions[0].leader
        others = [node for node in self.target.nodes if node.id != leader]
        struck = time.monotonic()
        blow_falls = threading.Thread(target=begin, args=(self.target, leader))
        blow_falls.start()  # a stop in good order lasts until the leader has handed over
        try:
            until = struck + NEW_LEADER_WITHIN_S
            while (seen := look(others, TOPIC).partitions.get(0)) is None or seen.leader in (leader, -1):
                if time.monotonic() > until:
                    raise TargetError(f"{self.target.spec}: no new leader within {NEW_LEADER_WITHIN_S:.0f} s")
                time.sleep(LOOK_EVERY_S)
            elected = time.monotonic()
            self.stream.await_acknowledgement(elected)
        finally:
            blow_falls.join()
            end(self.target, leader)
        self.await_whole()
        time.sleep(STEADY_S)
        return {"new_leader_s": elected - struck, "longest_gap_s": self.stream.longest_gap_s(struck)}

    def view(self) -> ClusterView:
        return look(self.target.nodes, TOPIC)

    def await_whole(self) -> None:
        """Errors: TargetError."""
        until = time.monotonic() + WHOLE_WITHIN_S
        while not self.view().complete(1):
            if time.monotonic() > until:
                raise TargetError(f"{self.target.spec}: not every replica was in sync within {WHOLE_WITHIN_S:.0f} s")
            time.sleep(0.1)

    def count_records(self) -> dict[str, int]:
        """What was acknowledged, and what of it is missing or there twice."""
        held = Counter(read_all(self.target.bootstrap))
        return {
            "acknowledged": len(self.stream.acknowledged),
            "not_acknowledged": len(self.stream.failed),
            "lost": sum(held[number] == 0 for number in self.stream.acknowledged),
            "doubled": sum(count > 1 for count in held.values()),
        }


def read_all(bootstrap: str) -> list[int]:
    """The numbers of all records of the partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "failover", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=ACKNOWLEDGED_WITHIN_S)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: dict[int, int] = {}
        until = time.monotonic() + ACKNOWLEDGED_WITHIN_S
        while len(found) < end and time.monotonic() < until:
            for record in consumer.consume(1_000, timeout=1.0):
                if record.error() is None:
                    found[record.offset() or 0] = int(record.value() or b"-1")
        return list(found.values())
    finally:
        consumer.close()


def compare(
    subject: str, against: str, blows: tuple[str, ...], rounds: int, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Measure both clusters in turn; gives the table that is saved as JSON. Errors: TargetError."""
    table: dict[str, Any] = {"subject": subject, "against": against, "timeouts": FAST_FAILOVER, "rows": []}
    config = FAST_FAILOVER | {"min.insync.replicas": "2"}
    with (
        open_target(subject, folder=folder / "subject", config=config, nodes=3) as one,
        open_target(against, folder=folder / "against", config=config, nodes=3) as other,
    ):
        for target in (one, other):
            create_topic(target.nodes, TOPIC, partitions=1, replication_factor=3, configs={})
        with Stream(one.bootstrap) as first, Stream(other.bootstrap) as second:
            sides = {subject: Side(one, first), against: Side(other, second)}
            for blow in blows:
                for number in range(rounds):
                    for spec, side in sides.items():
                        progress(f"{blow}: {spec}, round {number + 1} of {rounds}")
                        side.rounds.setdefault(blow, []).append(side.strike(blow))
                table["rows"].append(_row(blow, sides, subject, against))
        table["records"] = {spec: side.count_records() for spec, side in sides.items()}
    return table


def _row(blow: str, sides: dict[str, Side], subject: str, against: str) -> dict[str, Any]:
    medians = {
        spec: {name: statistics.median(each[name] for each in side.rounds[blow]) for name in side.rounds[blow][0]}
        for spec, side in sides.items()
    }
    ratios = {f"{name}_ratio": medians[subject][name] / medians[against][name] for name in medians[subject]}
    return {
        "blow": blow,
        "medians": medians,
        **ratios,
        "rounds": {spec: side.rounds[blow] for spec, side in sides.items()},
    }
