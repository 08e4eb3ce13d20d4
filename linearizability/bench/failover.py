"""Failover of two clusters side by side: the time to a new leader, and the longest time without an acknowledged record.

Both have the same timeouts (`FAST_FAILOVER`, as hunts have) and the same clients (`streams.py`): idempotent producers of
every library, which send a record every few milliseconds with acks=all, each to a partition of its own. All partitions have
the same replicas and one leader, into which a fault is injected; measurements count from it. In the end everything is read,
and an acknowledged record that is lost or doubled is reported: a failover that loses records counts as none.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linearizability.bench.brokers import open_for_bench
from linearizability.bench.streams import ACKNOWLEDGED_WITHIN_S, LOOK_EVERY_S, Stream, partitions, require
from linearizability.faults.plan import FAST_FAILOVER
from linearizability.interrupting import until_interrupted
from linearizability.targets import Target, TargetError
from linearizability.workload.cluster import create_topic, elect_preferred, look

TOPIC = "failover"
CONFIG = FAST_FAILOVER | {"min.insync.replicas": "2", "auto.leader.rebalance.enable": "false"}
"""Only faults cause a leader change."""
NEW_LEADER_WITHIN_S = 60.0
WHOLE_WITHIN_S = 120.0
STEADY_S = 2.0
"""How long records flow undisturbed before a fault, and after the cluster has recovered."""

Progress = Callable[[str], None]
Act = Callable[[Target, int], None]
Round = Mapping[str, Mapping[str, float]]
"""Client -> the effects of one fault on it."""

FAULTS: dict[str, tuple[Act, Act]] = {
    "kill": (lambda target, node: target.kill(node), lambda target, node: target.restart(node)),
    "stop": (lambda target, node: target.stop(node), lambda target, node: target.restart(node)),
    "freeze": (lambda target, node: target.pause(node), lambda target, node: target.resume(node)),
}
"""Fault -> the functions that inject and end it: kill -9, SIGTERM (with a controlled shutdown first), SIGSTOP.

A frozen leader's connections stay open: clients then mostly wait for their own REQUEST_TIMEOUT_MS.
"""

SIDES = ("subject", "against")


@dataclass
class Side:
    """One of the two clusters, its streams, and its measurements."""

    target: Target
    streams: Sequence[Stream]
    rounds: defaultdict[str, list[Round]] = field(default_factory=lambda: defaultdict[str, list[Round]](list))

    def inject(self, fault: str) -> Round:
        """Inject one fault into the leader of all partitions, measure it, and wait for the recovery.

        It lasts until every client has had a record acknowledged by the new leader. The longest gap may also fall into the
        time after it, in which the target node comes back. Errors: TargetError.
        """
        begin, end = FAULTS[fault]
        leader = self.await_steady()
        injected_at = time.monotonic()
        with ThreadPoolExecutor(1) as beside:
            # A clean stop lasts until the leader has handed over.
            injecting = beside.submit(begin, self.target, leader)
            try:
                elected = self.await_new_leaders(leader)
                for stream in self.streams:
                    stream.await_acknowledgement(elected[stream.partition])
            finally:
                injecting.result()  # if it failed, this error is the reason why no other node leads
                end(self.target, leader)
        self.await_one_leader()
        time.sleep(STEADY_S)
        return {
            stream.client: {
                "new_leader_s": elected[stream.partition] - injected_at,
                "longest_gap_s": stream.outcomes.longest_gap_s(injected_at),
            }
            for stream in self.streams
        }

    def await_steady(self) -> int:
        """Wait until one node leads all partitions and records flow, and return the leader. Errors: TargetError."""
        until = time.monotonic() + WHOLE_WITHIN_S
        while time.monotonic() < until:
            leader = self.await_one_leader()
            for stream in self.streams:
                stream.await_acknowledgement(time.monotonic())
            time.sleep(STEADY_S)
            if self.leaders() == {leader}:
                return leader
        raise TargetError(f"{self.target.spec}: leaders went on moving for {WHOLE_WITHIN_S:.0f} s")

    def await_one_leader(self) -> int:
        """Wait until all replicas are in sync and one node leads all partitions, and return it. Elects the preferred leaders
        where they differ.

        Errors: TargetError.
        """
        until = time.monotonic() + WHOLE_WITHIN_S
        while len(leaders := self.leaders()) != 1:
            if time.monotonic() > until:
                raise TargetError(
                    f"{self.target.spec}: not every replica was in sync under one leader within {WHOLE_WITHIN_S:.0f} s"
                )
            if leaders:
                elect_preferred(self.target.nodes, TOPIC, len(self.streams))
            time.sleep(0.1)
        return leaders.pop()

    def await_new_leaders(self, former: int) -> dict[int, float]:
        """Partition -> when another leader was first seen. Errors: TargetError."""
        others = [node for node in self.target.nodes if node.id != former]
        until = time.monotonic() + NEW_LEADER_WITHIN_S
        elected: dict[int, float] = {}
        while len(elected) < len(self.streams):
            if time.monotonic() > until:
                raise TargetError(f"{self.target.spec}: no new leader within {NEW_LEADER_WITHIN_S:.0f} s")
            view = look(others, TOPIC)
            now = time.monotonic()
            for partition, seen in view.partitions.items():
                if seen.leader not in (former, -1):
                    elected.setdefault(partition, now)
            time.sleep(LOOK_EVERY_S)
        return elected

    def leaders(self) -> set[int]:
        """The leaders of the partitions; empty while a replica is out of sync."""
        view = look(self.target.nodes, TOPIC)
        return {each.leader for each in view.partitions.values()} if view.complete(len(self.streams)) else set()

    def count_records(self) -> dict[str, dict[str, int]]:
        """Client -> the counts of its records by outcome."""
        return {
            stream.client: stream.outcomes.count(read_all(self.target.bootstrap, stream.partition))
            for stream in self.streams
        }


def read_all(bootstrap: str, partition: int) -> list[int]:
    """The numbers of all records of the partition. Errors: TargetError."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "failover", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=ACKNOWLEDGED_WITHIN_S)
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        found: dict[int, int] = {}
        until = time.monotonic() + ACKNOWLEDGED_WITHIN_S
        while len(found) < end:
            if time.monotonic() > until:
                raise TargetError(f"{len(found)} of {end} records of partition {partition} could be read")
            for record in consumer.consume(1_000, timeout=1.0):
                if record.error() is None:
                    found[record.offset() or 0] = int(record.value() or b"-1")
        return list(found.values())
    finally:
        consumer.close()


@dataclass(frozen=True)
class Plan:
    """The two clusters, the clients, the faults and the number of rounds."""

    subject: str
    against: str
    clients: Sequence[str]
    faults: Sequence[str]
    rounds: int


def compare(plan: Plan, folder: Path, progress: Progress) -> dict[str, Any]:
    """Measure both clusters in turn, and return the table for JSON. Errors: TargetError."""
    require(plan.clients)
    table: dict[str, Any] = {"subject": plan.subject, "against": plan.against, "timeouts": FAST_FAILOVER}
    table |= {"rows": [], "records": {}}
    with until_interrupted(table), ExitStack() as clusters:
        targets = {
            name: clusters.enter_context(open_for_bench(spec, folder / name, CONFIG, nodes=3))
            for name, spec in zip(SIDES, (plan.subject, plan.against), strict=True)
        }
        with ExitStack() as running:
            sides = {
                name: Side(target, _start_streams(running, target, plan.clients, folder / f"{name}-clients"))
                for name, target in targets.items()
            }
            for fault in plan.faults:
                try:
                    _measure(fault, sides, plan.rounds, progress)
                finally:
                    measured = {name: side.rounds[fault] for name, side in sides.items() if side.rounds[fault]}
                    if len(measured) == len(sides):
                        table["rows"] += [row(fault, client, measured) for client in plan.clients]
        table["records"] = {name: side.count_records() for name, side in sides.items()}
    return table


def _measure(fault: str, sides: Mapping[str, Side], rounds: int, progress: Progress) -> None:
    for number in range(rounds):
        for name, side in sides.items():
            progress(f"{fault}: {name} {side.target.spec}, round {number + 1} of {rounds}")
            side.rounds[fault].append(side.inject(fault))


def _start_streams(running: ExitStack, target: Target, clients: Sequence[str], folder: Path) -> list[Stream]:
    folder.mkdir(parents=True)
    placed = partitions(clients)
    replicas = [node.id for node in target.nodes]
    create_topic(
        target.nodes, TOPIC, partitions=len(placed), replication_factor=len(replicas), configs={}, replicas=replicas
    )
    return [
        running.enter_context(Stream(client, target.bootstrap, TOPIC, partition, folder))
        for client, partition in placed.items()
    ]


def row(fault: str, client: str, measured: Mapping[str, Sequence[Round]]) -> dict[str, Any]:
    """The effects of one fault on one client on both sides: medians, and the ratios of the subject's to the other's."""
    rounds = {name: [each[client] for each in measured[name]] for name in SIDES}
    medians = {
        name: {what: statistics.median(each[what] for each in rounds[name]) for what in rounds[name][0]}
        for name in SIDES
    }
    subject, against = (medians[name] for name in SIDES)
    ratios = {f"{what}_ratio": subject[what] / against[what] for what in subject}
    return {"fault": fault, "client": client, "medians": medians, **ratios, "rounds": rounds}


def unsound(table: Mapping[str, Any]) -> bool:
    """Whether an acknowledged record was lost, or a record is there twice."""
    return any(
        counts["lost"] or counts["doubled"] for clients in table["records"].values() for counts in clients.values()
    )


def show(table: Mapping[str, Any]) -> None:
    """Print a row for each fault and client, and the outcomes of each client's records."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=120)
    times = Table(title=f"{table['subject']} against {table['against']} (medians; ratio of the first to the second)")
    for name in ("fault", "client", "new leader s", "", "ratio", "longest gap s", "", "ratio"):
        times.add_column(name, justify="left" if name in ("fault", "client") else "right")
    for each in table["rows"]:
        cells = [each["fault"], each["client"]]
        for what in ("new_leader_s", "longest_gap_s"):
            cells += [f"{each['medians'][name][what]:.2f}" for name in SIDES]
            cells.append(f"{each[f'{what}_ratio']:.2f}")
        times.add_row(*cells)
    console.print(times)
    records = Table(title="records, read in the end")
    for name in ("cluster", "client", "acknowledged", "not acknowledged", "lost", "doubled"):
        records.add_column(name, justify="left" if name in ("cluster", "client") else "right")
    for name, clients in table["records"].items():
        for client, counts in clients.items():
            records.add_row(table[name], client, *(f"{count:,}" for count in counts.values()))
    if records.row_count:
        console.print(records)
