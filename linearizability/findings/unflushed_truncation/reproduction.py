"""A replica truncates its log, and loses power: with unmodified clients, and a power loss by the interposer."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from linearizability.findings.reading import read
from linearizability.targets import TargetError, WrongTarget, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.workload.cluster import PartitionView, create_topic, elect_preferred, find_controller, look

TOPIC = "orders"
WITHIN_S = 60.0
SETTINGS = {"auto.leader.rebalance.enable": "false"}


class Story:
    """The scenario for one partition with two replicas; the third node is the active controller."""

    def __init__(self, target: ClusterTarget, seen: list[str]) -> None:
        self.target = target
        self.seen = seen
        controller = find_controller(target.nodes, -1)
        self.first, self.second = (node.id for node in target.nodes if node.id != controller)

    def view(self) -> PartitionView:
        partitions = look(self.target.nodes, TOPIC).partitions
        return partitions.get(0, PartitionView(-1, -1, (), ()))

    def await_state(self, what: str, holds: Callable[[PartitionView], bool]) -> None:
        """Wait until the partition is in a state. Errors: TargetError."""
        until = time.monotonic() + WITHIN_S
        while not holds(view := self.view()):
            if time.monotonic() > until:
                raise TargetError(f"{what}: timed out at {view}")
            time.sleep(0.3)
        self.seen.append(what)

    def write(self, value: str, acks: str) -> int:
        """Write a record, and return its acknowledged offset; -1 for an error."""
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            offsets.append(-1 if error else message.offset() or 0)
            self.seen.append(f"{value}, acks={acks}: {error.name() if error else f'offset {message.offset()}'}")

        producer = Producer({"bootstrap.servers": self.target.bootstrap, "acks": acks, "log_level": 0})
        producer.produce(TOPIC, value, on_delivery=delivered)
        producer.flush(WITHIN_S)
        return offsets[-1] if offsets else -1

    def play(self) -> tuple[int, dict[int, str], dict[int, str]]:
        """Play the scenario. Returns the last record's acknowledged offset, and the log's content before and after the power
        loss."""
        target, first, second = self.target, self.first, self.second
        create_topic(
            target.nodes,
            TOPIC,
            partitions=1,
            replication_factor=2,
            configs={"min.insync.replicas": "2"},
            replicas=[first, second],
        )
        self.write("a", "all")
        target.pause(second)
        for value in ("b", "c"):  # the first one may answer the follower's waiting fetch
            self.write(value, "1")
        target.stop(first)  # it gives up its leadership at once, and ends when the frozen follower is fenced
        if target.exit_status(first) == -signal.SIGKILL:
            raise TargetError(f"node {first} did not end in good order, and may not have flushed its log")
        target.resume(second)
        self.await_state(f"node {first} ended in good order, node {second} leads", lambda view: view.leader == second)
        target.restart(first)
        self.await_state(f"node {first} has truncated its log: both are in sync", lambda view: len(view.in_sync) == 2)
        acknowledged = self.write("d", "all")
        before = read(target.bootstrap, TOPIC)
        target.power_loss([first])
        self.await_state(f"node {first} has lost power", lambda view: view.in_sync == (second,))
        target.restart(first)
        self.await_state("both are in sync again", lambda view: len(view.in_sync) == 2)
        elect_preferred(target.nodes, TOPIC, 1)
        self.await_state(f"node {first} leads again", lambda view: view.leader == first)
        return acknowledged, before, read(target.bootstrap, TOPIC)


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    target = open_target(spec, folder=folder, config=SETTINGS)
    if not isinstance(target, ClusterTarget):
        raise WrongTarget(f"{spec!r}: no loss of power can be made there")
    target.interpose()
    with target:
        acknowledged, before, after = Story(target, seen).play()
    seen += [f"before the loss of power the log holds {before}", f"afterwards {after}"]
    if before.get(acknowledged) != "d":
        return None, seen
    return after.get(acknowledged) != "d", seen
