"""One simulated run: takes a schedule to its end, and returns the histories of its clients.

Topics are created, clients work under faults, everything is healed, the clients come to rest, a last reader reads every
partition to its end, each node is stopped and started once more. A broken promise ends the run at once (`Violation`).
`judging` judges the histories.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from linearizability.simulation import (
    faults,
    inspecting_groups,
    inspecting_members,
    inspecting_metadata,
    inspecting_partitions,
    inspecting_transactions,
)
from linearizability.simulation.administering import SimulatedAdministrator
from linearizability.simulation.client import SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.consuming import SimulatedConsumer
from linearizability.simulation.cooperating import CooperativeMember
from linearizability.simulation.coordinator_agreement import COORDINATED, require_replayed
from linearizability.simulation.copying import SimulatedCopier
from linearizability.simulation.describing import SimulatedDescriber
from linearizability.simulation.evidence import commit_transactions
from linearizability.simulation.grouping import SimulatedMember
from linearizability.simulation.history_recorder import ClientHistory
from linearizability.simulation.inspecting import Chapters, Inspector
from linearizability.simulation.operating import Operator
from linearizability.simulation.portions import portions
from linearizability.simulation.producing import SimulatedProducer
from linearizability.simulation.reconciling import ReconcilingMember
from linearizability.simulation.recreating import SimulatedRecreator
from linearizability.simulation.restarting import lose_one, start_again
from linearizability.simulation.schedule import (
    Administrator,
    Client,
    Consumer,
    Copier,
    Member,
    Producer,
    Recreator,
    Schedule,
    Seeker,
    Transactor,
    Updater,
)
from linearizability.simulation.seeking import SimulatedSeeker
from linearizability.simulation.settling import leaderless, may_hang, unfinished, unsettled, unstable
from linearizability.simulation.transacting import SimulatedTransactor
from linearizability.simulation.updating import SimulatedUpdater
from linearizability.simulation.world import MICROSECONDS_A_MS, Trace, Violation

SETUP_BOUND_MS = 20_000
REST_BOUND_MS = 20_000
"""After healing, every client must come to rest within this (virtual) time."""
TRANSACTIONAL_REST_BOUND_MS = 45_000
"""A broker waits for the response of a coordinator that has lost power as long as a request may take: 30 s."""
IN_SYNC_BOUND_MS = 45_000
"""After healing, every replica is in sync within this time. A follower that lost its leader's response asks again after 30 s
(replica.socket.timeout.ms)."""
DRAIN_BOUND_MS = 60_000
EVIDENCE_BATCHES = 3
GROUPS_BOUND_MS = 20_000
"""Once the other clients rest, every group is stable and has read everything within this time."""
LOOK_EVERY_US = 10_000
"""How often the run looks whether all nodes are at rest."""
STABLE_BOUND_MS = 15_000
"""After everything has come to rest, open transactions time out and are decided within this time."""


@dataclass
class FinishedRun:
    """One run at its end; its clients' histories are not judged yet."""

    schedule: Schedule
    histories: Sequence[ClientHistory] = ()
    rule: str = ""
    """The broken promise that ended the run; empty if none was broken."""
    text: str = ""
    digest: str = ""
    """Of the trace: the same schedule gives the same."""
    counts: Counter[str] = field(default_factory=Counter[str])
    steps: int = 0
    virtual_ms: int = 0
    acknowledged: int = 0
    acknowledged_by_all: int = 0
    leader_changes: int = 0
    consumed: int = 0

    @property
    def messages(self) -> int:
        """Requests delivered to nodes and answers that left them."""
        return self.counts["messages"]


class Driver(Protocol):
    """Takes a cluster through the steps of a schedule (`linearizability/guided`)."""

    @property
    def is_over(self) -> bool: ...

    def start(self) -> None: ...

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """A node has traced an action of the specification."""


class DrivenSchedule(Schedule, ABC):
    """A schedule of a cluster that something besides faults and clients acts on."""

    @abstractmethod
    def driver(self, cluster: SimulatedCluster) -> Driver: ...


class SimulatedRun:
    """A cluster, its clients, and the phases of a schedule."""

    def __init__(self, schedule: Schedule, keep_trace: bool = False, by_history: bool = False) -> None:
        self.cluster = SimulatedCluster(schedule, keep_trace, by_history)
        self.cluster.network.is_calm = isinstance(schedule, DrivenSchedule)
        self.cluster.start_planned = self.add_client
        self._schedule = schedule
        self._world = self.cluster.world
        self._operator: Operator | None = None
        self._traps = faults.Traps(self.cluster)
        if self.cluster.checker is not None and any(fault.after for fault in schedule.faults):
            self.cluster.checker.listener = self._traps.on_action

    def run(self) -> None:
        """Take the schedule to its end. Errors: Violation."""
        *others, last = self.cluster.machines
        for machine in others:
            machine.start()
        if self._schedule.first_start_dies_at:
            self._world.after(0, last.start_first, self._schedule.first_start_dies_at)
        else:
            last.start()
        self._create_topics()
        if not self.cluster.is_alone:
            self._operator = Operator(self.cluster, len(self.cluster.recorders), self.cluster.new_recorder(None))
            self.cluster.operator = self._operator
            self._operator.start()
        self._work_under_faults()
        faults.heal_all(self.cluster)
        self._world.trace.note("healed")
        self._come_to_rest()
        self._drain()
        self._compare_look_ups()
        self._compare_tables()
        for machine in self.cluster.machines:
            start_again(self.cluster, machine)
        if not isinstance(self._schedule, DrivenSchedule):
            lose_one(self.cluster, self.cluster.machines[self._schedule.seed % len(self.cluster.machines)])

    def _work_under_faults(self) -> None:
        """Let clients work and inject faults until the schedule's duration and its last fault are over."""
        world = self._world
        begin_us = world.now_us
        for plan in self._schedule.clients:
            self.add_client(plan)
        driver = self._driver()
        for number, fault in enumerate(self._schedule.faults):
            at_us = begin_us + fault.at_ms * MICROSECONDS_A_MS
            if fault.after:
                world.at(at_us, self._traps.arm, fault, number)
            else:
                world.at(at_us, faults.inject, self.cluster, fault, number)
        end_us = begin_us + self._schedule.duration_ms * MICROSECONDS_A_MS
        world.run(end_us, (lambda: driver.is_over) if driver is not None else None)
        self.cluster.is_over = True
        latest_ms = max((fault.at_ms for fault in self._schedule.faults), default=0)
        world.run(max(world.now_us, begin_us + latest_ms * MICROSECONDS_A_MS))
        self._traps.disarm()
        world.run(max(world.now_us, self.cluster.heals_at_us))

    def _come_to_rest(self) -> None:
        """Wait, once all is healed, for clients, groups, leaders and transactions. Errors: Violation, at a bound."""
        if self._operator is not None:
            self._operator.watch_leaders()
        clients = [client for client in self.cluster.clients if isinstance(client, SimulatedClient)]
        members = [client for client in clients if isinstance(client, SimulatedMember)]
        others = [client for client in clients if not isinstance(client, SimulatedMember)]
        self._rest(others, self._transactional_bound_ms if self._schedule.transacts else REST_BOUND_MS)
        self._settle_groups(members)
        self._wait_for_leaders()
        if self._operator is not None:
            self._operator.finish()
        commit_transactions(self.cluster, self.add_client, TRANSACTIONAL_REST_BOUND_MS)
        self._wait_for_stable_ends()
        self._leave_evidence()
        self._wait_for_abdications()
        self._wait_for_replicas()
        self._inspect(inspecting_partitions.CHAPTERS)
        self._inspect(inspecting_metadata.FORWARDED)
        self._inspect(
            () if self.cluster.is_alone else inspecting_metadata.AT_CONTROLLERS.get(self._schedule.coordination, ())
        )
        self._inspect(inspecting_transactions.CHAPTERS if self._schedule.transacts else ())

    def _driver(self) -> Driver | None:
        if not isinstance(self._schedule, DrivenSchedule) or self.cluster.checker is None:
            return None
        driver = self._schedule.driver(self.cluster)
        self.cluster.checker.listener = driver.on_action
        driver.start()
        return driver

    def _create_topics(self) -> None:
        recorder = self.cluster.new_recorder(None)
        topics = [*self._schedule.topics, *self._schedule.compacted]
        creator = SimulatedAdministrator(self.cluster, recorder.process, recorder, topics, 1)
        creator.start()
        bound_us = SETUP_BOUND_MS * MICROSECONDS_A_MS
        self._world.run(bound_us, lambda: len(creator.confirmed) == len(topics))
        if len(creator.confirmed) < len(topics):
            raise Violation("no-progress", f"the topics were not created within {SETUP_BOUND_MS} ms")
        creator.finish()

    def _client(self, plan: Client) -> SimulatedClient:
        recorder = self.cluster.new_recorder(plan)
        match plan:
            case Producer():
                return SimulatedProducer(self.cluster, recorder.process, recorder, plan)
            case Consumer():
                return SimulatedConsumer(self.cluster, recorder.process, recorder, plan)
            case Copier():
                return SimulatedCopier(self.cluster, recorder.process, recorder, plan)
            case Member():
                return _kind_of(plan)(self.cluster, recorder.process, recorder, plan)
            case Transactor():
                return SimulatedTransactor(self.cluster, recorder.process, recorder, plan)
            case Seeker():
                return SimulatedSeeker(self.cluster, recorder.process, recorder, plan)
            case Updater():
                topic = next(each for each in self._schedule.compacted if each.name == plan.topic)
                return SimulatedUpdater(self.cluster, recorder.process, recorder, plan, topic)
            case Recreator():
                return SimulatedRecreator(self.cluster, recorder.process, recorder, plan)
            case Administrator():
                return SimulatedAdministrator.for_plan(self.cluster, recorder.process, recorder, plan)

    def add_client(self, plan: Client) -> SimulatedClient:
        """Start a client of a schedule."""
        client = self._client(plan)
        self.cluster.start(client)
        return client

    @property
    def _transactional_bound_ms(self) -> int:
        return TRANSACTIONAL_REST_BOUND_MS + self._schedule.set_back_ms

    def _rest(self, clients: list[SimulatedClient], bound_ms: int) -> None:
        until_us = self._world.now_us + bound_ms * MICROSECONDS_A_MS
        self._world.run(until_us, lambda: all(client.finished for client in clients))
        busy = [client.name for client in clients if not client.finished and not may_hang(self.cluster, client)]
        if busy:
            text = f"{', '.join(busy)} did not come to rest within {bound_ms} ms after everything was healed"
            self._require_leaders(text)
            raise Violation("no-progress", text)

    def _settle_groups(self, members: list[SimulatedMember]) -> None:
        """Wait until each group is stable and has read every partition to its end; then let all leave. Errors: Violation."""
        bound_ms = self._transactional_bound_ms if self._schedule.transacts else GROUPS_BOUND_MS
        bound_us = self._world.now_us + bound_ms * MICROSECONDS_A_MS
        for member in members:
            member.hurry()
        self._world.run(bound_us, lambda: not unsettled(self.cluster, members), LOOK_EVERY_US)
        bound = [member for member in members if not may_hang(self.cluster, member)]
        if reason := unsettled(self.cluster, bound):
            self._require_leaders(reason)
            raise Violation("group-not-settled", f"{bound_ms} ms after everything was healed: {reason}")
        self._describe_groups(bound)
        self._inspect(inspecting_groups.AMONG_MEMBERS if members else ())
        self._inspect((*inspecting_members.CHAPTERS, *inspecting_groups.ALONE) if members else ())
        self._compare_coordinators()
        for member in members:
            if not member.finished:
                member.retire()
        self._rest([*members], REST_BOUND_MS)

    def _describe_groups(self, members: Sequence[SimulatedMember]) -> None:
        """Compare what DescribeGroups returns with what the members of stable groups know. Errors: Violation."""
        if all(member.finished for member in members):
            return
        recorder = self.cluster.new_recorder(None)
        describer = SimulatedDescriber(self.cluster, recorder.process, recorder, members)
        self.cluster.start(describer)
        self._world.run(self._world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS, lambda: describer.finished)
        if not describer.finished:
            self._require_leaders(describer.difference)
            raise Violation("description-differs", describer.difference)

    def _inspect(self, chapters: Chapters) -> None:
        """Ask what administrators ask, and what must be refused; what clients' histories show is not in it. Errors: Violation."""
        if self._world.by_history or isinstance(self._schedule, DrivenSchedule) or not chapters:
            return
        if self._schedule.coordination == "zookeeper":
            return  # the answers are those of APIs and versions that brokers have with a metadata quorum alone
        recorder = self.cluster.new_recorder(None)
        inspector = Inspector(self.cluster, recorder.process, recorder, chapters)
        self.cluster.start(inspector)
        self._world.run(self._world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS, lambda: inspector.finished)
        if not inspector.finished:
            self._require_leaders(inspector.difference)
            raise Violation("answer-differs", inspector.difference)

    def _compare_coordinators(self) -> None:
        """Compare the coordinators' state with what their logs replay to. Errors: Violation."""
        for machine in self.cluster.machines:
            node = machine.node
            for partition in node.partitions.values() if node is not None else ():
                if node is not None and partition.topic in COORDINATED:
                    require_replayed(f"{partition.name} on {machine.name}", node, partition)

    def _wait_for_leaders(self) -> None:
        """Wait until every partition has a leader, which the last reader needs. Errors: Violation."""
        until_us = self._world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS
        self._world.run(until_us, lambda: not self._leaderless(), LOOK_EVERY_US)
        if leaderless := self._leaderless():
            text = f"{REST_BOUND_MS} ms after everything was healed there is no leader of {', '.join(leaderless)}"
            raise Violation("no-progress", text)

    def _leaderless(self) -> list[str]:
        """The clients' partitions that no node leads by its own knowledge."""
        led = {
            key
            for machine in self.cluster.machines
            if machine.node is not None
            for key, partition in machine.node.partitions.items()
            if partition.is_leader
        }
        return [f"{topic}-{index}" for topic, index in self.cluster.partitions() if (topic, index) not in led]

    def _require_leaders(self, late: str) -> None:
        """What is late waits for a leader, where a partition has none that could have one. Errors: Violation."""
        if not self._world.by_history and self.cluster.zookeeper is None and (found := leaderless(self.cluster)):
            raise Violation("partition-not-led", f"{late}; {'; '.join(found[:3])}")

    def _wait_for_stable_ends(self) -> None:
        """Wait until last stable offsets reach the high watermarks: no transaction hangs. Errors: Violation."""
        if not self._schedule.transacts:
            return
        bound_ms = STABLE_BOUND_MS + self._schedule.set_back_ms
        self._world.run(
            self._world.now_us + bound_ms * MICROSECONDS_A_MS, lambda: not unstable(self.cluster), LOOK_EVERY_US
        )
        hanging = [
            f"{partition.name} at {partition.last_stable_offset()} of {partition.high_watermark}"
            for number, partition in unstable(self.cluster)
            if self.cluster.checker is None or not self.cluster.checker.lost_ends(number, partition)
        ]
        if hanging and not self.cluster.promises.is_forgetful:
            text = f"after {bound_ms} ms of rest the last stable offset stands still in {', '.join(hanging)}"
            raise Violation("hanging-transaction", text)

    def _leave_evidence(self) -> None:
        """Write a few batches where nothing was acknowledged under faults: a healed cluster takes them."""
        if any(recorder.has_sent for recorder in self.cluster.recorders):
            return
        self.cluster.is_over = False
        self._world.counts["runs in which nothing was acknowledged before the end"] += 1
        producer = self.add_client(Producer(batches=EVIDENCE_BATCHES, pause_ms=1))
        bound_us = self._world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS
        self._world.run(bound_us, lambda: producer.finished)
        self.cluster.is_over = True
        self._rest([producer], REST_BOUND_MS)

    def _wait_for_abdications(self) -> None:
        """Wait until deposed leaders know their successors: they would serve old ends to the last reader. Errors: Violation."""
        self._world.run(
            self._world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS, lambda: not self._deposed(), LOOK_EVERY_US
        )
        deposed = self._deposed()
        if deposed:
            text = f"{REST_BOUND_MS} ms after everything was healed {', '.join(deposed)} does not know of its successor"
            raise Violation("no-progress", text)

    def _wait_for_replicas(self) -> None:
        """Wait until partitions are led and replicas in sync, or no tool's request is left in ZooKeeper. Errors: Violation."""
        if self.cluster.is_alone:
            return
        until_us = self._world.now_us + IN_SYNC_BOUND_MS * MICROSECONDS_A_MS
        self._world.run(until_us, lambda: not unfinished(self.cluster), LOOK_EVERY_US)
        if late := unfinished(self.cluster):
            rule = "partition-not-led" if leaderless(self.cluster) else "replica-out-of-sync"
            rule = rule if self.cluster.zookeeper is None else "zookeeper-not-followed"
            self._world.broken(rule, f"{IN_SYNC_BOUND_MS} ms after everything was healed: {'; '.join(late[:3])}")

    def _deposed(self) -> list[str]:
        """The nodes that lead a partition by their own knowledge, while a newer leader was elected."""
        if self.cluster.checker is None:
            return []
        epochs = {
            key: oracle.decided.leader_epoch
            for key in self.cluster.partitions()
            if (oracle := self.cluster.checker.oracle(key))
        }
        return [
            f"{machine.name}, which leads {topic}-{index},"
            for machine in self.cluster.machines
            if machine.node is not None
            for (topic, index), epoch in epochs.items()
            if (partition := machine.node.partitions.get((topic, index))) is not None
            and partition.is_leader
            and partition.state.leader_epoch < epoch
        ]

    def _drain(self) -> None:
        """Read every partition to its end.

        The reader begins a microsecond after the last acknowledgement: records acknowledged at the same moment need not be read.
        """
        self._world.run(self._world.now_us + 1)
        isolation = "read_committed" if self._schedule.transacts else "read_uncommitted"
        plan = Consumer(start="earliest", version=12, max_bytes=1 << 20, isolation=isolation)
        recorder = self.cluster.new_recorder(plan)
        reader = SimulatedConsumer(self.cluster, recorder.process, recorder, plan, drains=True)
        self.cluster.start(reader)
        self._rest([reader], DRAIN_BOUND_MS)

    def _compare_look_ups(self) -> None:
        """Compare look-ups by timestamp with the leaders' logs, where no committed record may be lost. Errors: Violation."""
        seekers = [client for client in self.cluster.clients if isinstance(client, SimulatedSeeker)]
        for key in self.cluster.partitions() if seekers else ():
            leader = (
                self.cluster.leader_of(key) if self.cluster.checker is not None else self.cluster.machines[0].number
            )
            node = self.cluster.machine(leader).node if leader is not None else None
            partition = node.partitions.get(key) if node is not None else None
            if partition is None or self.cluster.promises.may_have_lost(key):
                continue
            start = max(seeker.deleted.get(key, 0) for seeker in seekers)
            for seeker in seekers:
                seeker.compare(key, partition, start)

    def _compare_tables(self) -> None:
        """Compare the replicas in sync of compacted topics with what was written. Errors: Violation."""
        updaters = {client.key: client for client in self.cluster.clients if isinstance(client, SimulatedUpdater)}
        for machine in self.cluster.machines:
            node = machine.node
            for key, updater in updaters.items():
                oracle = self.cluster.checker.oracle(key) if self.cluster.checker is not None else None
                partition = node.partitions.get(key) if node is not None else None
                if partition is not None and (oracle is None or machine.number in oracle.decided.isr):
                    updater.compare(partition, machine.name)
            for directory in node.logs.live if node is not None and updaters else ():
                self._world.counts["bytes compacted"] += directory.cleaner.cleaned_bytes


def _kind_of(plan: Member) -> type[SimulatedMember]:
    """The class of a member, by the protocol of its group."""
    if plan.protocol == "consumer":
        return ReconcilingMember
    return CooperativeMember if plan.assignors == ("cooperative-sticky",) else SimulatedMember


def execute(
    schedule: Schedule, keep_trace: bool = False, by_history: bool = False, rows: list[dict[str, Any]] | None = None
) -> tuple[FinishedRun, Trace]:
    """Run one schedule on the nodes as they are now (see `linearizability.mutants` for planted bugs).

    With `by_history` the invariants of nodes and replicas are not looked at. `rows` takes all steps of the specification
    that nodes trace, in order (`tidegauge spec trace` checks them).
    """
    run = SimulatedRun(schedule, keep_trace, by_history)
    cluster, world = run.cluster, run.cluster.world
    world.rows = rows
    rule = text = ""
    try:
        with portions(schedule.small_portions):
            run.run()
    except Violation as violation:
        rule, text = violation.rule, violation.text
        world.trace.note(f"violation {violation}")
        if keep_trace:
            world.trace.log_event("world", "world", f"VIOLATION {violation}")
    producers = [client for client in cluster.clients if isinstance(client, SimulatedProducer)]
    finished = FinishedRun(
        schedule,
        cluster.recorders,
        rule,
        text,
        world.trace.digest,
        world.counts,
        world.steps,
        world.now_ms,
        acknowledged=sum(each.acknowledged for each in producers),
        acknowledged_by_all=sum(each.acknowledged for each in producers if each.plan.acks == "all"),
        leader_changes=cluster.checker.leader_changes if cluster.checker is not None else 0,
        consumed=sum(client.consumed for client in cluster.clients if isinstance(client, SimulatedConsumer)),
    )
    return finished, world.trace
