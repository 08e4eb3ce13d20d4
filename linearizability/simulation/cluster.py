"""One simulated run: a schedule in, what became of it out.

Topics are created, clients work under faults, everything is healed, the clients come to rest, a last reader drains
every partition, each node is stopped and started once more. What must never happen ends the run at once (a violation);
what the clients saw is for `judging` to judge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from linearizability.history.excuses import EXCUSE, OVER
from linearizability.simulation import faults
from linearizability.simulation.administering import SimulatedAdministrator
from linearizability.simulation.client import SimulatedClient, error_name
from linearizability.simulation.cluster_checker import ClusterChecker
from linearizability.simulation.configuration import PORTS, host_of
from linearizability.simulation.consuming import SimulatedConsumer
from linearizability.simulation.cooperating import CooperativeMember
from linearizability.simulation.coordinator_agreement import COORDINATED, require_replayed
from linearizability.simulation.copying import SimulatedCopier
from linearizability.simulation.describing import SimulatedDescriber
from linearizability.simulation.gates import Gates
from linearizability.simulation.grouping import SimulatedMember
from linearizability.simulation.history_recorder import ClientHistory, HistoryRecorder
from linearizability.simulation.machine import EPOCH_MS, Machine
from linearizability.simulation.network import Network
from linearizability.simulation.operating import Operator
from linearizability.simulation.producing import SimulatedProducer
from linearizability.simulation.reconciling import ReconcilingMember
from linearizability.simulation.sampling import sampler
from linearizability.simulation.schedule import (
    GROUPS_TOPIC,
    TRANSACTIONS_TOPIC,
    Administrator,
    Client,
    Consumer,
    Copier,
    Member,
    Producer,
    Schedule,
    Seeker,
    Topic,
    Transactor,
)
from linearizability.simulation.seeking import SimulatedSeeker
from linearizability.simulation.settling import unsettled
from linearizability.simulation.transacting import TIMEOUT_MS, SimulatedTransactor
from linearizability.simulation.world import MICROSECONDS_A_MS, Trace, Violation, World
from reference.controller.image import NO_LEADER, PartitionImage
from reference.protocol.primitives import NO_EPOCH, NO_OFFSET, LeaderEpoch, NodeId, Offset, TimestampMs
from reference.replication.partition import Partition

Scripted = TypeVar("Scripted", bound=SimulatedClient)

SETUP_BOUND_MS = 20_000
REST_BOUND_MS = 20_000
"""After healing, every client must come to rest within this (virtual) time."""
TRANSACTIONAL_REST_BOUND_MS = 45_000
"""A broker that asks a coordinator which has lost power waits for its answer as long as a request may take: 30 s."""
DRAIN_BOUND_MS = 60_000
EVIDENCE_BATCHES = 3
STOP_BOUND_MS = 10_000
GROUPS_BOUND_MS = 20_000
"""Once the other clients rest, every group is stable and has read everything within this time."""
TRANSACTIONS = ("__transaction_state", 0)
"""Where the transactions' coordinator writes down what it has decided. Once its records may be gone, it may promise nothing."""
LOOK_EVERY_US = 10_000
"""How often it is looked into all nodes whether they are at rest."""
STABLE_BOUND_MS = 15_000
"""After everything has come to rest, open transactions time out and are decided within this time."""


@dataclass
class FinishedRun:
    """One run that is over; what its clients saw is not judged yet."""

    schedule: Schedule
    histories: Sequence[ClientHistory] = ()
    rule: str = ""
    """The broken promise that ended the run; empty if none did."""
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
    def driver(self, cluster: Cluster) -> Driver: ...


class Cluster:
    """The machines, the network and the clients of one run."""

    def __init__(self, schedule: Schedule, keep_trace: bool = False, by_history: bool = False) -> None:
        self.schedule = schedule
        self.world = World(schedule.seed, keep_trace, by_history)
        self.network = Network(self.world)
        self.network.gates = Gates() if schedule.holds_messages else None
        self.network.reads_clients = schedule.holds_what_is_produced
        self.network.is_calm = isinstance(schedule, DrivenSchedule)
        self.is_alone = schedule.nodes == 1
        self.checker = None if self.is_alone else ClusterChecker(schedule)
        self.machines = [
            Machine(self.world, number, schedule, self.network, self, self.checker) for number in schedule.node_ids
        ]
        self._machines = {machine.number: machine for machine in self.machines}
        if keep_trace:
            self.world.trace.look = sampler(self.machines, self.world.trace.events, self.world.trace.samples)
        self.recorders: list[HistoryRecorder] = []
        self.recorder = self._recorder(None)
        """The world's own recorder: faults and heals, and what they excuse."""
        if self.checker is not None:
            self.checker.mark = self.recorder.mark
        self.clients: list[SimulatedClient] = []
        self.is_over = False
        self.heals_at_us = 0
        """When the last of the injected faults is over."""
        self.traps = faults.Traps(self)
        if self.checker is not None and any(fault.after for fault in schedule.faults):
            self.checker.listener = self.traps.on_action
        self.operator: Operator | None = None
        self._producer_ids: dict[tuple[int, int], str] = {}

    def _recorder(self, plan: Client | None) -> HistoryRecorder:
        recorder = HistoryRecorder(self.world, len(self.recorders), self.schedule.contract(plan))
        self.recorders.append(recorder)
        return recorder

    def partitions(self) -> list[tuple[str, int]]:
        return [(topic.name, index) for topic in self.schedule.topics for index in range(topic.partitions)]

    def inputs(self) -> list[tuple[str, int]]:
        """The partitions that producers write and groups read."""
        return [(topic.name, index) for topic in self._topics(False) for index in range(topic.partitions)]

    def input_counts(self) -> dict[str, int]:
        """How many partitions each of these topics has."""
        return {topic.name: topic.partitions for topic in self._topics(False)}

    def outputs(self) -> list[tuple[str, int]]:
        """The partitions that copiers write."""
        return [(topic.name, index) for topic in self._topics(True) for index in range(topic.partitions)]

    def _topics(self, is_output: bool) -> list[Topic]:
        return [topic for topic in self.schedule.topics if topic.is_output == is_output]

    def machine(self, number: int) -> Machine:
        return self._machines[number]

    def find(self, host: str, port: int) -> tuple[Machine, str] | None:
        """Who listens at an address, and the listener's name."""
        for machine in self.machines:
            for listener, its_port in PORTS.items():
                if (host, port) == (host_of(machine.number), its_port):
                    return machine, listener
        return None

    def leader_of(self, key: tuple[str, int]) -> int | None:
        """The leader of a partition by the newest decision that any node has replayed; None for none."""
        oracle = self.checker.oracle(key) if self.checker is not None else None
        return oracle.decided.leader if oracle is not None and oracle.decided.leader in self._machines else None

    def active_controller(self) -> int | None:
        """The node that decides, by the highest epoch among those that say so."""
        active = [(machine.controller_epoch, machine.number) for machine in self.machines]
        epoch, number = max(active)
        return number if epoch >= 0 else None

    def are_unfenced(self, brokers: Sequence[int]) -> bool:
        """Whether the active controller takes all of them to be alive."""
        controller = self.active_controller()
        node = self.machine(controller).node if controller is not None else None
        known = node.image.brokers if node is not None else {}
        return all(broker in known and not known[broker].fenced for broker in map(NodeId, brokers))

    def in_sync_everywhere(self, topic: str) -> bool:
        """Whether the active controller knows an in-sync replica of each of the topic's partitions."""
        partitions = self._decided(topic)
        return bool(partitions) and all(each.isr for each in partitions.values())

    def unelectable(self, topic: str) -> dict[int, dict[NodeId, tuple[LeaderEpoch, Offset]]]:
        """The topic's partitions without a replica that may lead, but by an unclean election, although all their replicas live:
        for each replica how far its log reaches, by its last leader epoch and its end."""
        return {
            index: {replica: self._reach((topic, index), replica) for replica in each.replicas}
            for index, each in self._decided(topic).items()
            if each.leader == NO_LEADER
            and not (each.isr or each.eligible_leader_replicas or each.last_known_elr)
            and self.are_unfenced(each.replicas)
        }

    def _reach(self, key: tuple[str, int], replica: NodeId) -> tuple[LeaderEpoch, Offset]:
        node = self.machine(replica).node
        partition = node.partitions.get(key) if node is not None else None
        if partition is None:
            return NO_EPOCH, NO_OFFSET
        return partition.log.leader_epoch, partition.log.log_end_offset

    def _decided(self, topic: str) -> Mapping[int, PartitionImage]:
        """A topic's partitions as the active controller knows them; none without the topic or an active controller."""
        controller = self.active_controller()
        node = self.machine(controller).node if controller is not None else None
        known = node.image.topics.get(topic) if node is not None else None
        return known.partitions if known is not None else {}

    def client_clock_ms(self) -> TimestampMs:
        return TimestampMs(EPOCH_MS + self.world.now_ms)

    # ---- the run

    def run(self) -> None:
        """Errors: Violation."""
        world = self.world
        for machine in self.machines:
            machine.start()
        self._create_topics()
        if not self.is_alone:
            self.operator = Operator(self, len(self.recorders), self._recorder(None))
            self.operator.start()
        begin_us = world.now_us
        for plan in self.schedule.clients:
            self.add_client(plan)
        driver = self._driver()
        for number, fault in enumerate(self.schedule.faults):
            at_us = begin_us + fault.at_ms * MICROSECONDS_A_MS
            if fault.after:
                world.at(at_us, self.traps.arm, fault, number)
            else:
                world.at(at_us, faults.inject, self, fault, number)
        end_us = begin_us + self.schedule.duration_ms * MICROSECONDS_A_MS
        world.run(end_us, (lambda: driver.is_over) if driver is not None else None)
        self.is_over = True
        latest_ms = max((fault.at_ms for fault in self.schedule.faults), default=0)
        world.run(max(world.now_us, begin_us + latest_ms * MICROSECONDS_A_MS))
        self.traps.disarm()
        world.run(max(world.now_us, self.heals_at_us))
        faults.heal_all(self)
        world.trace.note("healed")
        if self.operator is not None:
            self.operator.watch_leaders()
        members = [client for client in self.clients if isinstance(client, SimulatedMember)]
        others = [client for client in self.clients if not isinstance(client, SimulatedMember)]
        self._rest(others, self._transactional_bound_ms if self.schedule.transacts else REST_BOUND_MS)
        self._settle_groups(members)
        self._wait_for_leaders()
        if self.operator is not None:
            self.operator.finish()
        self._wait_for_stable_ends()
        self._leave_evidence()
        self._wait_for_abdications()
        self._drain()
        self._compare_look_ups()
        for machine in self.machines:
            self._start_again(machine)

    def _driver(self) -> Driver | None:
        if not isinstance(self.schedule, DrivenSchedule) or self.checker is None:
            return None
        driver = self.schedule.driver(self)
        self.checker.listener = driver.on_action
        driver.start()
        return driver

    def add_scripted(
        self, make: Callable[[Cluster, int, HistoryRecorder], Scripted], plan: Client | None = None
    ) -> Scripted:
        """Another client starts and waits for a driver's calls."""
        recorder = self._recorder(plan)
        client = make(self, recorder.process, recorder)
        self._start(client)
        return client

    def _start_again(self, machine: Machine) -> None:
        machine.stop()
        bound_us = self.world.now_us + STOP_BOUND_MS * MICROSECONDS_A_MS
        if machine.is_up:
            self.world.run(bound_us, lambda: not machine.is_up)
        if machine.is_up:
            raise Violation("no-progress", f"{machine.name} did not stop within {STOP_BOUND_MS} ms")
        machine.start()

    def on_power_loss(self, number: int) -> None:
        """Of a node that is alone what was not flushed is gone: that explains the loss of what was sent before. Of several
        the checker knows when they were in doubt together."""
        if self.checker is None and not self.schedule.always_flushed:
            excuse = sum(machine.power_losses for machine in self.machines)
            keys = [*(topic.name for topic in self.schedule.topics), GROUPS_TOPIC, TRANSACTIONS_TOPIC]
            self.recorder.mark(EXCUSE, number=excuse, cause="power-loss", keys=keys, nodes=[number])
            self.recorder.mark(OVER, number=excuse)

    def _create_topics(self) -> None:
        recorder = self._recorder(None)
        creator = SimulatedAdministrator(self, recorder.process, recorder, [*self.schedule.topics], 1)
        creator.start()
        bound_us = SETUP_BOUND_MS * MICROSECONDS_A_MS
        self.world.run(bound_us, lambda: len(creator.confirmed) == len(self.schedule.topics))
        if len(creator.confirmed) < len(self.schedule.topics):
            raise Violation("no-progress", f"the topics were not created within {SETUP_BOUND_MS} ms")
        creator.finish()

    def _client(self, plan: Client) -> SimulatedClient:
        recorder = self._recorder(plan)
        match plan:
            case Producer():
                return SimulatedProducer(self, recorder.process, recorder, plan)
            case Consumer():
                return SimulatedConsumer(self, recorder.process, recorder, plan)
            case Copier():
                return SimulatedCopier(self, recorder.process, recorder, plan)
            case Member():
                return _kind_of(plan)(self, recorder.process, recorder, plan)
            case Transactor():
                return SimulatedTransactor(self, recorder.process, recorder, plan)
            case Seeker():
                return SimulatedSeeker(self, recorder.process, recorder, plan)
            case Administrator():
                return SimulatedAdministrator.for_plan(self, recorder.process, recorder, plan)

    def add_client(self, plan: Client) -> SimulatedClient:
        """Another client begins to work."""
        client = self._client(plan)
        self._start(client)
        return client

    def _start(self, client: SimulatedClient) -> None:
        self.clients.append(client)
        client.start()

    @property
    def _transactional_bound_ms(self) -> int:
        return TRANSACTIONAL_REST_BOUND_MS + self.schedule.set_back_ms

    def _rest(self, clients: list[SimulatedClient], bound_ms: int) -> None:
        until_us = self.world.now_us + bound_ms * MICROSECONDS_A_MS
        self.world.run(until_us, lambda: all(client.finished for client in clients))
        transacting = (SimulatedTransactor, SimulatedCopier)
        busy = [
            client.name
            for client in clients
            if not client.finished and not (self._is_forgetful and isinstance(client, transacting))
        ]
        if busy:
            text = f"{', '.join(busy)} did not come to rest within {bound_ms} ms after everything was healed"
            raise Violation("no-progress", text)

    def _settle_groups(self, members: list[SimulatedMember]) -> None:
        """All is healed: each group becomes stable and reads every partition to its end; then all leave. Errors: Violation."""
        bound_ms = self._transactional_bound_ms if self.schedule.transacts else GROUPS_BOUND_MS
        bound_us = self.world.now_us + bound_ms * MICROSECONDS_A_MS
        for member in members:
            member.hurry()
        self.world.run(bound_us, lambda: not unsettled(self, members), LOOK_EVERY_US)
        bound = [member for member in members if not (self._is_forgetful and isinstance(member, SimulatedCopier))]
        if reason := unsettled(self, bound):
            raise Violation("group-not-settled", f"{bound_ms} ms after everything was healed: {reason}")
        self._describe_groups(bound)
        self._compare_coordinators()
        for member in members:
            if not member.finished:
                member.retire()
        self._rest([*members], REST_BOUND_MS)

    def _describe_groups(self, members: Sequence[SimulatedMember]) -> None:
        """Administrators are answered what the members of stable groups know. Errors: Violation."""
        if all(member.finished for member in members):
            return
        recorder = self._recorder(None)
        describer = SimulatedDescriber(self, recorder.process, recorder, members)
        self._start(describer)
        self.world.run(self.world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS, lambda: describer.finished)
        if not describer.finished:
            raise Violation("description-differs", describer.difference)

    def _compare_coordinators(self) -> None:
        """Errors: Violation."""
        for machine in self.machines:
            node = machine.node
            for partition in node.partitions.values() if node is not None else ():
                if node is not None and partition.topic in COORDINATED:
                    require_replayed(f"{partition.name} on {machine.name}", node, partition)

    @property
    def _is_forgetful(self) -> bool:
        """Whether the coordinator of transactions may have lost what it had decided."""
        return self.schedule.transacts and self._may_have_lost(TRANSACTIONS)

    def _wait_for_leaders(self) -> None:
        """Who asks for a last stable offset, or reads for the last time, finds a leader of every partition. Errors: Violation."""
        until_us = self.world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS
        self.world.run(until_us, lambda: not self._leaderless(), LOOK_EVERY_US)
        if leaderless := self._leaderless():
            text = f"{REST_BOUND_MS} ms after everything was healed there is no leader of {', '.join(leaderless)}"
            raise Violation("no-progress", text)

    def _leaderless(self) -> list[str]:
        """The clients' partitions that no node takes itself to lead."""
        led = {
            key
            for machine in self.machines
            if machine.node is not None
            for key, partition in machine.node.partitions.items()
            if partition.is_leader
        }
        return [f"{topic}-{index}" for topic, index in self.partitions() if (topic, index) not in led]

    def _wait_for_stable_ends(self) -> None:
        """No transaction hangs: once all are at rest, last stable offsets reach the high watermarks. Errors: Violation."""
        if not self.schedule.transacts:
            return
        bound_ms = STABLE_BOUND_MS + self.schedule.set_back_ms
        self.world.run(self.world.now_us + bound_ms * MICROSECONDS_A_MS, lambda: not self._unstable(), LOOK_EVERY_US)
        hanging = [
            f"{partition.name} at {partition.last_stable_offset()} of {partition.high_watermark}"
            for number, partition in self._unstable()
            if self.checker is None or not self.checker.lost_ends(number, partition)
        ]
        if hanging and not self._is_forgetful:
            text = f"after {bound_ms} ms of rest the last stable offset stands still in {', '.join(hanging)}"
            raise Violation("hanging-transaction", text)

    def _unstable(self) -> list[tuple[int, Partition]]:
        """The leaders' replicas in which some transaction is undecided, as far as they know, and whose they are."""
        return [
            (machine.number, partition)
            for machine in self.machines
            if machine.node is not None
            for partition in machine.node.partitions.values()
            if partition.is_leader and partition.last_stable_offset() < partition.high_watermark
        ]

    def _leave_evidence(self) -> None:
        """A cluster that could not take a single write under its faults takes one now that it is healed."""
        if any(recorder.has_sent for recorder in self.recorders):
            return
        self.is_over = False
        self.world.counts["runs in which nothing was acknowledged before the end"] += 1
        producer = self.add_client(Producer(batches=EVIDENCE_BATCHES, pause_ms=1))
        bound_us = self.world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS
        self.world.run(bound_us, lambda: producer.finished)
        self.is_over = True
        self._rest([producer], REST_BOUND_MS)

    def _wait_for_abdications(self) -> None:
        """Deposed leaders learn of it; until then it may serve old ends to the last reader. Errors: Violation."""
        self.world.run(
            self.world.now_us + REST_BOUND_MS * MICROSECONDS_A_MS, lambda: not self._deposed(), LOOK_EVERY_US
        )
        deposed = self._deposed()
        if deposed:
            text = f"{REST_BOUND_MS} ms after everything was healed {', '.join(deposed)} does not know of its successor"
            raise Violation("no-progress", text)

    def _deposed(self) -> list[str]:
        """The leaders of partitions that another one leads by now."""
        if self.checker is None:
            return []
        epochs = {key: oracle.decided.leader_epoch for key in self.partitions() if (oracle := self.checker.oracle(key))}
        return [
            f"{machine.name}, which leads {topic}-{index},"
            for machine in self.machines
            if machine.node is not None
            for (topic, index), epoch in epochs.items()
            if (partition := machine.node.partitions.get((topic, index))) is not None
            and partition.is_leader
            and partition.state.leader_epoch < epoch
        ]

    def _drain(self) -> None:
        """The last reader begins after everything was acknowledged: at the same moment it would owe no record of that."""
        self.world.run(self.world.now_us + 1)
        isolation = "read_committed" if self.schedule.transacts else "read_uncommitted"
        plan = Consumer(start="earliest", version=12, max_bytes=1 << 20, isolation=isolation)
        recorder = self._recorder(plan)
        reader = SimulatedConsumer(self, recorder.process, recorder, plan, drains=True)
        self._start(reader)
        self._rest([reader], DRAIN_BOUND_MS)

    def _compare_look_ups(self) -> None:
        """What was found by time is compared where nothing committed may be gone. Errors: Violation."""
        seekers = [client for client in self.clients if isinstance(client, SimulatedSeeker)]
        for key in self.partitions() if seekers else ():
            leader = self.leader_of(key) if self.checker is not None else self.machines[0].number
            node = self.machine(leader).node if leader is not None else None
            partition = node.partitions.get(key) if node is not None else None
            if partition is None or self._may_have_lost(key):
                continue
            start = max(seeker.deleted.get(key, 0) for seeker in seekers)
            for seeker in seekers:
                seeker.compare(key, partition, start)

    # ---- what clients report

    def on_acknowledged(self, key: tuple[str, int], end: int, who: str, acks: str) -> None:
        """Only what is in the log may be acknowledged; with acks=all only what is committed. Errors: Violation."""
        highest = max(machine.watch.highest_end.get(key, 0) for machine in self.machines)
        if end > highest:
            text = f"{who} got an acknowledgement of {key[0]}-{key[1]} record {end - 1}, and no log ever reached beyond {highest}"
            self.world.broken("acknowledged-before-append", text)
        oracle = self.checker.oracle(key) if self.checker is not None else None
        if oracle is not None and acks == "all" and end > oracle.committed_end and not oracle.is_excused:
            text = f"{who} got an acknowledgement of {key[0]}-{key[1]} record {end - 1}, committed up to {oracle.committed_end}"
            self.world.broken("acknowledged-before-commit", text)

    def on_consumed(self, key: tuple[str, int], end: int, who: str) -> None:
        """A consumer is given what is committed, whichever replica it reads from. Errors: Violation."""
        oracle = self.checker.oracle(key) if self.checker is not None else None
        if oracle is not None and end > oracle.committed_end and not oracle.is_excused:
            text = f"{who} reads {key[0]}-{key[1]} up to {end}, committed up to {oracle.committed_end}"
            self.world.broken("consumed-before-commit", text)

    def _may_have_lost(self, key: tuple[str, int]) -> bool:
        """Whether records that a client saw may be gone from a partition."""
        if self.checker is not None:
            return self.checker.excuses(key)
        return not self.schedule.always_flushed and any(machine.power_losses for machine in self.machines)

    def on_out_of_range(self, key: tuple[str, int], who: str) -> None:
        """An offset that was once given to a client stays, but for retention and lost records. Errors: Violation."""
        retains = any(topic.name == key[0] and topic.retains for topic in self.schedule.topics)
        if not retains and not self._may_have_lost(key):
            self.world.broken(
                "offset-out-of-range", f"{who}: its place in {key[0]}-{key[1]} is gone, and nothing was lost"
            )

    def history_so_far(self) -> tuple[int, int]:
        """How many processes the machines have started, and how often they lost power."""
        return sum(machine.incarnations for machine in self.machines), sum(
            machine.power_losses for machine in self.machines
        )

    def leads(self, number: int, key: tuple[str, int]) -> int | None:
        """The epoch in which a node leads a partition by what the controllers decided; None where another one does."""
        if self.checker is None:
            return 0
        oracle = self.checker.oracle(key)
        return oracle.decided.leader_epoch if oracle is not None and oracle.decided.leader == number else None

    def on_sequence_lost(
        self, partition: str, who: str, code: int, restarted: bool, power_lost: bool, deposed: bool
    ) -> None:
        """Whether a broker may not know the sequence number that an idempotent producer's oldest batch follows.

        It may have forgotten it when it was started again since the batch was first sent (a snapshot keeps each producer's
        last batch only), when power was lost since the producer got its id and not every append was flushed, and when an
        unclean election may have taken committed records back. And it may never have received it when it was `deposed`
        before it answered and did not know: produce requests name no leader epoch. Errors: Violation.
        """
        forgotten = restarted or (power_lost and not self.schedule.always_flushed) or self.schedule.elects_uncleanly
        if not forgotten and not deposed:
            self.world.broken(
                "sequence-lost", f"{who}: {error_name(code)} for its oldest batch to {partition}, without a reason"
            )

    def on_truncation_reported(self, key: tuple[str, int], who: str) -> None:
        """A log is cut below what clients saw only when power was lost. Errors: Violation."""
        if not self._may_have_lost(key):
            self.world.broken(
                "truncation-reported", f"{who}: {key[0]}-{key[1]} is said to have been cut, and nothing was lost"
            )

    def on_replaced_member_received(self, who: str, by: str) -> None:
        """Two may not be the same static member at once (GRP-21). Errors: Violation."""
        if not self._may_have_lost((GROUPS_TOPIC, 0)):
            self.world.broken(
                "replaced-member-commits", f"{who} commits, and {by} had taken its place in the group before"
            )

    def on_repeated_end_fenced(self, who: str, open_for_us: int) -> None:
        """A repeated EndTxn is answered with the transaction's outcome (KIP-890), unless it has timed out. Errors: Violation."""
        sets_clocks = any(fault.kind == "clock-jump" for fault in self.schedule.faults)
        is_timely = open_for_us < TIMEOUT_MS * MICROSECONDS_A_MS and not sets_clocks
        if is_timely and not self._is_forgetful:
            self.world.broken(
                "repeated-end-fenced", f"{who} asked again for the end of its transaction, and was fenced"
            )

    def claim_producer_id(self, producer_id: int, epoch: int, who: str) -> None:
        """A producer id is given out once (IDM-01). Errors: Violation."""
        other = self._producer_ids.setdefault((producer_id, epoch), who)
        forgot = self.schedule.transacts and self._may_have_lost(TRANSACTIONS)
        if (other != who and not forgot) or producer_id < 0:
            self.world.broken("producer-id-twice", f"producer id {producer_id} was given to {other} and to {who}")


def _kind_of(plan: Member) -> type[SimulatedMember]:
    """How a member speaks with its coordinator."""
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
    cluster = Cluster(schedule, keep_trace, by_history)
    world = cluster.world
    world.rows = rows
    rule = text = ""
    try:
        cluster.run()
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
