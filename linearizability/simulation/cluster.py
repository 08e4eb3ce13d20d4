"""The machines, the network and the metadata of one simulated cluster, as clients, faults and drivers see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from linearizability.history.excuses import EXCUSE, OVER
from linearizability.simulation.client_promises import ClientPromises
from linearizability.simulation.cluster_checker import ClusterChecker
from linearizability.simulation.configuration import PORTS, host_of, properties_of
from linearizability.simulation.gates import Gates
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.machine import EPOCH_MS, Machine
from linearizability.simulation.network import Network
from linearizability.simulation.sampling import sampler
from linearizability.simulation.schedule import (
    GROUPS_TOPIC,
    TRANSACTIONS_TOPIC,
    Client,
    Fault,
    Schedule,
    Topic,
)
from linearizability.simulation.simulated_zookeeper import PLACE, SimulatedZooKeeper
from linearizability.simulation.world import World
from reference.controller.image import NO_LEADER, PartitionImage
from reference.protocol.primitives import NO_EPOCH, NO_OFFSET, LeaderEpoch, NodeId, Offset, TimestampMs


class RunningClient(Protocol):
    """The interface of a client for its cluster."""

    name: str
    finished: bool

    def start(self) -> None: ...


class ClusterOperator(Protocol):
    """Performs the faults that are an operator's actions."""

    @property
    def is_ready(self) -> bool: ...

    def take(self, fault: Fault) -> None: ...


Scripted = TypeVar("Scripted", bound=RunningClient)


def no_clients(plan: Client) -> RunningClient:
    """Errors: AssertionError; a cluster without a run starts no clients of a schedule."""
    raise AssertionError(f"no run starts {plan}")


class SimulatedCluster:
    """The machines, the network and the clients of one run."""

    def __init__(self, schedule: Schedule, keep_trace: bool = False, by_history: bool = False) -> None:
        self.schedule = schedule
        self.world = World(schedule.seed, keep_trace, by_history)
        self.network = Network(self.world)
        self.network.gates = Gates() if schedule.holds_messages else None
        self.network.reads_clients = schedule.holds_what_is_produced
        self.is_alone = schedule.nodes == 1
        self.checker = None if self.is_alone else ClusterChecker(schedule)
        self.zookeeper = self._new_zookeeper()
        self.machines = [
            Machine(self.world, number, schedule, self.network, self, self.checker, self.zookeeper)
            for number in schedule.node_ids
        ]
        self._machines = {machine.number: machine for machine in self.machines}
        if keep_trace:
            self.world.trace.look = sampler(self.machines, self.world.trace.events, self.world.trace.samples)
        self.recorders: list[HistoryRecorder] = []
        self.recorder = self.new_recorder(None)
        """The recorder of the world itself: faults, heals, and excuses."""
        if self.checker is not None:
            self.checker.mark = self.recorder.mark
        self.promises = ClientPromises(self.world, schedule, self.machines, self.checker)
        self.clients: list[RunningClient] = []
        self.start_planned: Callable[[Client], RunningClient] = no_clients
        """Start another client of a schedule; a run sets it."""
        self.is_over = False
        self.heals_at_us = 0
        """The time at which the last injected fault ends."""
        self.operator: ClusterOperator | None = None

    def _new_zookeeper(self) -> SimulatedZooKeeper | None:
        if self.schedule.coordination != "zookeeper" or self.checker is None:
            return None
        timeout_ms = int(properties_of(self.schedule, self.schedule.node_ids[0])["zookeeper.session.timeout.ms"])
        zookeeper = SimulatedZooKeeper(self.world, self.network, timeout_ms)
        self.checker.watch_zookeeper(zookeeper.tree, zookeeper.has_session)
        return zookeeper

    @property
    def places(self) -> tuple[int, ...]:
        """The places of the nodes, and of ZooKeeper."""
        return self.schedule.node_ids if self.zookeeper is None else (PLACE, *self.schedule.node_ids)

    def new_recorder(self, plan: Client | None) -> HistoryRecorder:
        recorder = HistoryRecorder(self.world, len(self.recorders), self.schedule.contract(plan))
        self.recorders.append(recorder)
        return recorder

    def partitions(self) -> list[tuple[str, int]]:
        return [(topic.name, index) for topic in self.schedule.topics for index in range(topic.partitions)]

    def inputs(self) -> list[tuple[str, int]]:
        """The partitions that producers write and groups read."""
        return [(topic.name, index) for topic in self._topics(False) for index in range(topic.partitions)]

    def input_counts(self) -> dict[str, int]:
        """Input topic -> its number of partitions."""
        return {topic.name: topic.partitions for topic in self._topics(False)}

    def outputs(self) -> list[tuple[str, int]]:
        """The partitions that copiers write."""
        return [(topic.name, index) for topic in self._topics(True) for index in range(topic.partitions)]

    def _topics(self, is_output: bool) -> list[Topic]:
        return [topic for topic in self.schedule.topics if topic.is_output == is_output]

    def machine(self, number: int) -> Machine:
        return self._machines[number]

    def find(self, host: str, port: int) -> tuple[Machine, str] | None:
        """The machine that listens at an address, and the listener's name."""
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
        """The active controller: of the nodes that claim to be active, the one with the highest epoch."""
        active = [(machine.controller_epoch, machine.number) for machine in self.machines]
        epoch, number = max(active)
        return number if epoch >= 0 else None

    def are_unfenced(self, brokers: Sequence[int]) -> bool:
        """Whether the active controller has all of these brokers unfenced."""
        controller = self.active_controller()
        node = self.machine(controller).node if controller is not None else None
        known = node.image.brokers if node is not None else {}
        return all(broker in known and not known[broker].fenced for broker in map(NodeId, brokers))

    def in_sync_everywhere(self, topic: str) -> bool:
        """Whether the active controller knows an in-sync replica of each of the topic's partitions."""
        partitions = self._decided(topic)
        return bool(partitions) and all(each.isr for each in partitions.values())

    def unelectable(self, topic: str) -> dict[int, dict[NodeId, tuple[LeaderEpoch, Offset]]]:
        """The topic's partitions that only an unclean election can give a leader, although all their replicas are alive:
        replica -> its log's last leader epoch and end."""
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
        """A topic's partitions in the active controller's metadata; empty without the topic or an active controller."""
        controller = self.active_controller()
        node = self.machine(controller).node if controller is not None else None
        known = node.image.topics.get(topic) if node is not None else None
        return known.partitions if known is not None else {}

    def client_clock_ms(self) -> TimestampMs:
        return TimestampMs(EPOCH_MS + self.world.now_ms)

    def on_power_loss(self, number: int) -> None:
        """Record that a node alone loses what it has not flushed, which excuses losses before it.

        With several nodes the checker knows when their copies were in doubt together.
        """
        if self.checker is None and not self.schedule.always_flushed:
            excuse = sum(machine.power_losses for machine in self.machines)
            keys = [*(topic.name for topic in self.schedule.topics), GROUPS_TOPIC, TRANSACTIONS_TOPIC]
            self.recorder.mark(EXCUSE, number=excuse, cause="power-loss", keys=keys, nodes=[number])
            self.recorder.mark(OVER, number=excuse)

    def history_so_far(self) -> tuple[int, int]:
        """The numbers of process starts and of power losses so far."""
        return sum(machine.incarnations for machine in self.machines), sum(
            machine.power_losses for machine in self.machines
        )

    def cuts_of(self, key: tuple[str, int]) -> dict[int, int]:
        """Machine -> the number of times that it has truncated its log of a partition."""
        return {machine.number: machine.watch.cuts[key] for machine in self.machines}

    def leads(self, number: int, key: tuple[str, int]) -> int | None:
        """The epoch in which a node leads a partition by the controllers' decisions; None where it does not."""
        if self.checker is None:
            return 0
        oracle = self.checker.oracle(key)
        return oracle.decided.leader_epoch if oracle is not None and oracle.decided.leader == number else None

    def add_scripted(
        self, make: Callable[[SimulatedCluster, int, HistoryRecorder], Scripted], plan: Client | None = None
    ) -> Scripted:
        """Start a client that waits for a driver's calls."""
        recorder = self.new_recorder(plan)
        client = make(self, recorder.process, recorder)
        self.start(client)
        return client

    def start(self, client: RunningClient) -> None:
        """Start a client, and add it to the run's clients."""
        self.clients.append(client)
        client.start()
