"""The nodes of a target: observe them, stop them one by one, and restore all of them at the end.

    with cluster(broker) as nodes:
        topic = nodes.topic(1, 2)                # a partition on nodes 1 and 2; node 1 leads
        nodes.kill(1)
        nodes.await_state(topic, lambda state: state.leader == 2, "node 2 leads")

The state of a partition comes from the Metadata of a live node. Requests go to nodes that are neither frozen nor stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from conformance.answers import error_name, only
from conformance.batches import batch, values
from conformance.broker import RETRIABLE, Broker
from conformance.cluster_state import State, Writes
from conformance.described_cluster import DescribedCluster
from conformance.given_topics import skip_unknown_configs
from conformance.moments import LAG_MS, Moment
from conformance.observations import Skipped
from conformance.placing import moved_topic
from conformance.steps import built_on
from conformance.wire import Failed, NoAnswer
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.primitives import NodeId

SHOWN_WITHIN_S = 10.0
"""A record that cannot be read within this time, once a leader serves, counts as lost."""
PATIENT_SESSION_MS = 30_000
SESSION_MS = 6_000
QUICK = {
    "auto.leader.rebalance.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": str(LAG_MS),
}
"""Short timeouts for a replica's removal from the ISR and for a broker's fencing."""
PATIENT = QUICK | {"broker.session.timeout.ms": str(PATIENT_SESSION_MS)}
"""A silent broker leaves the ISRs long before it is fenced, so that a test can distinguish the two."""
STATE_WITHIN_S = 60.0
"""How long a state that follows from these timeouts may take on a busy machine. Includes a leader that sends AlterPartition
to an earlier, frozen controller, and to the active one only after 30 s (as in FORWARDED_WITHIN_S)."""
WHOLE_WITHIN_S = 240.0
"""How long it may take until every node reports a started node: Kafka 4.0.2 took 140 s on two cores with a load of 60."""
RETRY_S = 0.05
"""How long a writer waits after an error."""
NO_ID = -1
PREFERRED, UNCLEAN = 0, 1
"""Election types of ElectLeaders."""
CONNECTION_LOST = "the connection"
"""A placeholder for the error code where no response came."""


@contextmanager
def cluster(broker: Broker) -> Generator[JudgedCluster]:
    """The target's nodes. Every fault on them is undone at the end."""
    nodes = JudgedCluster(broker)
    try:
        yield nodes
    finally:
        nodes.mend()


class JudgedCluster(DescribedCluster):
    """The nodes of a target, all of which run at first."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.addresses = self._await_whole()
        """Node -> its address for clients. Keeps nodes that are stopped later."""
        self.frozen: set[int] = set()
        self.down: set[int] = set()
        self.is_cut = False
        """Whether the network is cut."""

    def _await_whole(self) -> dict[int, tuple[str, int]]:
        """Wait until Metadata reports every broker, and return their addresses. Extends the deadline by this wait.

        Skips where a broker is missing: it may be fenced because a busy machine delays its heartbeats, and a broker that does
        not return from a fault has already failed the requirement that injected it (`mend`).
        """
        began_s = time.monotonic()
        self.broker.deadline.at_s += WHOLE_WITHIN_S
        with suppress(NoAnswer):
            found = self.broker.eventually(self._whole, "Metadata reports every broker", within_s=WHOLE_WITHIN_S)
            self.broker.deadline.at_s -= WHOLE_WITHIN_S - (time.monotonic() - began_s)
            return found
        self.broker.subject.incomplete = f"Metadata reports {self.living()} alone"
        self.broker.skip(f"needs {self.broker.subject.nodes} brokers; {self.broker.subject.incomplete}")

    def cast(self) -> tuple[int, int, int]:
        """Assign the roles: a leader and a follower for the faults, and a third node, which is the active controller.

        A fault on a node that is not the active controller causes no controller election. Without DescribeQuorum, Metadata
        names the active controller, as with ZooKeeper, where no ISR shrinks while that node is frozen.
        """
        ids = sorted(self.addresses)
        if len(ids) < 3:
            raise Failed(f"Metadata reports the brokers {ids} only")
        try:
            active = self.quorum().leader_id
        except Skipped:
            active = self.broker.metadata([]).controller_id
        ids.sort(key=lambda node: node == active)
        return ids[0], ids[1], ids[2]

    # ---- hurting

    @contextmanager
    def paused(self, *nodes: int) -> Generator[Moment]:
        """Freeze nodes for the duration of the block. Observations that need them still in the ISRs belong into a `Moment`."""
        self.pause(*nodes)
        try:
            yield Moment()
        finally:
            self.resume(*(set(nodes) & self.frozen))

    def pause(self, *nodes: int) -> None:
        """Freeze nodes: their sockets stay open, and they answer nothing."""
        self._leave(nodes)
        self.frozen |= set(nodes)
        for node in nodes:
            self.broker.target.pause(node)

    def freeze_out(self, topic: Topic, follower: int, value: bytes) -> State:
        """Freeze a follower, write a record with acks=1, and wait until the follower is out of the ISR.

        A follower lags only where there is a record to fetch. It may still get this record: the leader answers a waiting
        fetch with it, and the follower reads the response once it resumes.
        """
        self.pause(follower)
        self.broker.append(topic, batch(value), acks=1)
        return self.await_state(topic, lambda state: follower not in state.isr, f"node {follower} is not in sync")

    def resume(self, *nodes: int) -> None:
        """Resume frozen nodes."""
        for node in nodes:
            self.broker.target.resume(node)
        self.frozen -= set(nodes)

    def kill(self, *nodes: int) -> None:
        """Kill nodes."""
        self._leave(nodes)
        self.down |= set(nodes)
        for node in nodes:
            self.broker.target.kill(node)
        self.frozen -= set(nodes)

    def lose_power(self, node: int) -> None:
        """Kill a node, and discard the bytes that it has not flushed."""
        self._leave([node])
        self.down.add(node)
        self.broker.target.power_loss([node])

    def stop(self, node: int) -> None:
        """Shut a node down cleanly; returns when its process has ended."""
        self._leave([node])
        self.down.add(node)
        self.broker.target.stop(node)

    def stop_during(self, node: int, work: Callable[[], None]) -> None:
        """Shut a node down cleanly while `work` runs; returns when both are done."""
        leaving = threading.Thread(target=self.broker.target.stop, args=(node,), daemon=True)
        self._leave([node])
        leaving.start()
        try:
            work()
        finally:
            leaving.join(WHOLE_WITHIN_S)
            self.broker.hang_up([self.addresses[node]])
            self.down.add(node)

    def restart(self, *nodes: int) -> None:
        """Start nodes that are down, and wait until every node reports them."""
        for node in nodes:
            self.broker.target.restart(node, wait=False)
        self.down -= set(nodes)
        self.await_known(*nodes)

    def configure(self, node: int, changes: Mapping[str, str]) -> None:
        """Shut a node down cleanly, start it with other broker properties, and wait until every node reports it."""
        self.stop(node)
        self.broker.target.config(node, changes)
        self.down.discard(node)
        self.await_known(node)

    def cut_off(self, node: int) -> None:
        """Cut the network between a node and the others, and ZooKeeper, where one coordinates them. The suite still reaches
        every node.

        Skips where ZooKeeper is not on the network that the target cuts: the node would stay registered there.
        """
        others = [other for other in self.addresses if other != node]
        if self.broker.subject.by_zookeeper:
            if self.broker.target.coordinator is None:
                self.broker.skip("needs cuts between a broker and the ZooKeeper, which the target does not offer")
            others.append(self.broker.target.coordinator)
        self.is_cut = True
        self.broker.target.partition([[node], others])

    def join(self) -> None:
        """Heal the network between the nodes."""
        self.broker.target.heal()
        self.is_cut = False

    def mend(self) -> None:
        """Undo every fault, and wait until each node runs and reports all of them.

        Errors: Failed where a node does not return.
        """
        if not self.frozen and not self.down and not self.is_cut:
            return
        self.broker.deadline.at_s = max(self.broker.deadline.at_s, time.monotonic() + WHOLE_WITHIN_S)
        self.broker.subject.incomplete = f"after {self.broker.requirement.id} not every broker is reported"
        if self.is_cut:
            self.join()
        self.resume(*self.frozen)
        self.restart(*self.down)
        self.broker.entrance = None
        self.broker.hurt = set()
        self.await_known(*self.addresses)
        self.broker.subject.incomplete = ""

    def _leave(self, nodes: Any) -> None:
        """Close the connections to these nodes, and send later requests to others."""
        gone = {self.addresses[node] for node in nodes}
        self.broker.hang_up(gone)
        left = [node for node in sorted(self.addresses) if node not in self.frozen | self.down | set(nodes)]
        self.broker.entrance = self.addresses[left[0]] if left else None
        self.broker.hurt = {
            self.addresses[node] for node in {*self.frozen, *self.down, *nodes} if node in self.addresses
        }

    # ---- looking

    def address(self, node: int) -> tuple[str, int]:
        """The address of a node for clients."""
        if node not in self.addresses:
            raise Failed(f"node {node} is not among the brokers {sorted(self.addresses)} that Metadata reported")
        return self.addresses[node]

    def node_at(self, address: tuple[str, int]) -> int:
        """The node with this address for clients, for instance a coordinator's."""
        return only([node for node, place in self.addresses.items() if place == address], f"node at {address}")

    @property
    def reachable(self) -> list[int]:
        """The nodes that are neither frozen nor down."""
        return [node for node in sorted(self.addresses) if node not in self.frozen | self.down]

    def living(self, via: int | None = None) -> list[int]:
        """The brokers that Metadata reports: those that are not fenced."""
        return sorted(self._living(self.address(via) if via is not None else None))

    def _living(self, to: tuple[str, int] | None = None) -> dict[int, tuple[str, int]]:
        return {one.node_id: (one.host, one.port) for one in self.broker.metadata([], to=to).brokers}

    def _whole(self) -> dict[int, tuple[str, int]] | None:
        """The brokers, once Metadata reports as many as at the target's start; else None. A broker that was frozen returns by
        itself."""
        living = self._living()
        return living if len(living) >= self.broker.subject.nodes else None

    def await_known(self, *nodes: int) -> None:
        """Wait until every reachable node reports these nodes."""
        for witness in self.reachable:
            self.broker.eventually(
                lambda witness=witness: self._reports(witness, nodes),
                f"node {witness} reports the brokers {sorted(nodes)}",
                within_s=WHOLE_WITHIN_S,
            )

    def _reports(self, witness: int, nodes: Collection[int]) -> bool:
        """Whether a node reports these nodes. Errors: Failed where one of them has ended by itself, as it will not return."""
        if ended := [node for node in nodes if node not in self.down and self.broker.subject.has_ended(node)]:
            raise Failed(f"node {ended[0]} has ended by itself")
        return self.try_living(witness) >= set(nodes)

    def try_living(self, via: int) -> set[int]:
        """The brokers that a node reports; empty while it does not answer."""
        with suppress(Failed):
            return set(self.living(via))
        return set()

    def state(self, topic: Topic, via: int | None = None) -> State:
        """The state of partition 0, from the Metadata of node `via`, or of the default one."""
        asked = [MetadataRequest.MetadataRequestTopic(name=topic.name)]
        answer = self.broker.metadata(asked, to=self.address(via) if via is not None else None)
        found = only(only(answer.topics, f"entry for {topic.name}").partitions, "partition")
        return State(found.leader_id, found.leader_epoch, tuple(found.replica_nodes), frozenset(found.isr_nodes))

    def await_state(
        self, topic: Topic, wanted: Callable[[State], bool], what: str, *, within_s: float = STATE_WITHIN_S
    ) -> State:
        """Wait until partition 0 is in a wanted state, and return the first such state."""

        def found() -> State | None:
            with suppress(Failed):
                state = self.state(topic)
                return state if wanted(state) else None
            return None

        state = self.broker.eventually(found, f"{topic.name}-0: {what}", within_s=within_s)
        self.broker.saw(f"{what}: leader {state.leader}, epoch {state.epoch}, in sync {sorted(state.isr)}")
        return state

    def await_isr(self, topic: Topic, *nodes: int) -> State:
        """Wait until exactly these nodes are in sync."""
        return self.await_state(topic, lambda state: state.isr == frozenset(nodes), f"{sorted(nodes)} are in sync")

    def await_leader(self, topic: Topic, *nodes: int, above: int = NO_ID) -> State:
        """Wait until one of these nodes leads partition 0, in an epoch above the given one, and serves it."""
        reported = " or ".join(map(str, nodes))
        state = self.await_state(topic, lambda one: one.leader in nodes and one.epoch > above, f"node {reported} leads")

        def learned() -> bool:
            """Whether the leader itself reports this epoch: before, it may serve reads and refuse writes."""
            with suppress(Failed):
                known = self.state(topic, via=state.leader)
                return (known.leader, known.epoch) == (state.leader, state.epoch) or known.epoch > state.epoch
            return False

        self.broker.eventually(learned, f"node {state.leader} knows that it leads", within_s=STATE_WITHIN_S)
        self.await_served(topic)
        return state

    @built_on("MET-08")
    def await_leaderless(self, topic: Topic) -> State:
        """Wait until Metadata reports that no replica leads the partition."""
        return self.await_state(topic, lambda state: state.leader == NO_ID, "no replica leads")

    def await_served(self, topic: Topic) -> None:
        """Wait until the leader serves the partition, and its high watermark has reached the log's end, if it can."""

        def served() -> bool:
            with suppress(Failed):
                return self.broker.end_offset(topic) >= 0
            return False

        def shows_all() -> bool:
            """Whether the high watermark has reached the end that ListOffsets reports: a new leader's may lag until its
            followers fetch."""
            with suppress(Failed):
                shown = self.broker.fetch(topic, self.broker.start_offset(topic)).high_watermark
                return shown >= self.broker.end_offset(topic)
            return False

        self.broker.eventually(served, f"the leader of {topic.name} serves it", within_s=STATE_WITHIN_S)
        with suppress(NoAnswer):
            self.broker.eventually(shows_all, f"the leader of {topic.name} shows all", within_s=SHOWN_WITHIN_S)

    # ---- topics and records

    def topic(self, *replicas: int, configs: Mapping[str, str] | None = None, in_sync: int = 1) -> Topic:
        """Create a topic of one partition on these nodes, all in sync; the first one leads. `in_sync` is its
        min.insync.replicas."""
        name = self.broker.unused_name()
        profile = self.broker.subject.profile
        given = profile.pinned | profile.retained | {"min.insync.replicas": str(in_sync)} | dict(configs or {})

        if not self.broker.subject.profile.places:
            return moved_topic(self, name, given, replicas)

        def made() -> bool:
            error = self.broker.create_topic(name, configs=given, placed=[replicas]).error_code
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return True
            if error not in (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_REPLICATION_FACTOR):
                skip_unknown_configs(self.broker, error, given)
                raise Failed(f"a topic on nodes {replicas} could not be made: {error_name(error)}")
            return False

        self.broker.eventually(made, f"a topic on nodes {replicas} can be made")
        topic = self.broker.await_topic(name)
        self.await_isr(topic, *replicas)
        return topic

    def reassign(self, topic: Topic, *replicas: int, cancel: bool = False) -> Any:
        """Send AlterPartitionReassignments for partition 0, and return the partition's result, also an error."""
        table = AlterPartitionReassignmentsRequest
        partition = table.ReassignablePartition(
            partition_index=0, replicas=None if cancel else [*map(NodeId, replicas)]
        )
        request = table(topics=[table.ReassignableTopic(name=topic.name, partitions=[partition])], timeout_ms=30_000)

        def answered() -> Any:
            answer = self.broker.call(request, timeout_s=30)
            return None if answer.error_code in RETRIABLE else answer

        answer = self.broker.eventually(answered, "AlterPartitionReassignments is answered", within_s=STATE_WITHIN_S)
        self.broker.expect_error(answer.error_code, ErrorCode.NONE, what="AlterPartitionReassignments")
        return only(only(answer.responses, "topic in the answer").partitions, "partition in the answer")

    def elect(self, topic: Topic, kind: int = PREFERRED) -> int:
        """Send ElectLeaders for partition 0, and return its error code."""
        asked = ElectLeadersRequest.TopicPartitions(topic=topic.name, partitions=[0])
        request = ElectLeadersRequest(election_type=kind, topic_partitions=[asked], timeout_ms=30_000)
        answer = self.broker.call(request, timeout_s=30)
        self.broker.expect_error(answer.error_code, ErrorCode.NONE, what="ElectLeaders")
        found = only(answer.replica_election_results, "topic in the answer")
        return only(found.partition_result, "partition in the answer").error_code

    @built_on("REP-05")
    def await_fenced(self, *nodes: int) -> None:
        """Wait until no reachable node reports these nodes in Metadata."""
        self.broker.eventually(
            lambda: not any({*nodes} & {*self.living(witness)} for witness in self.reachable),
            f"node {' and '.join(map(str, nodes))} is fenced",
            within_s=STATE_WITHIN_S,
        )

    def lead(self, topic: Topic, node: int) -> State:
        """Move the leadership to another replica, without a fault, and wait until it serves."""
        before = self.state(topic)
        self.change_leader(topic, node)
        return self.await_leader(topic, node, above=before.epoch)

    @built_on("ELE-04")
    def change_leader(self, topic: Topic, node: int) -> None:
        """Move the leadership to another replica, without a fault: make it preferred, send ElectLeaders, and wait until
        Metadata reports it."""
        before = self.state(topic)
        self.reorder(topic, node, *(other for other in before.replicas if other != node))
        self.broker.expect_error(self.elect(topic), ErrorCode.NONE, what="the preferred leader's election")
        self.await_state(topic, lambda one: one.leader == node and one.epoch > before.epoch, f"node {node} leads")

    @built_on("ELE-14")
    def reorder(self, topic: Topic, *order: int) -> None:
        """Reassign the same replicas in another order, and wait until Metadata reports it."""
        self.broker.expect_error(self.reassign(topic, *order).error_code, ErrorCode.NONE, what="another order")
        self.await_state(topic, lambda one: one.replicas == order, f"the replicas are in the order {order}")

    def write(self, topic: Topic, writes: Writes) -> None:
        """Write one record with acks=-1 to the present leader, and record the outcome in `writes`."""
        value = writes.value()
        try:
            leader = self.state(topic).leader
            if leader not in self.reachable:
                writes.errors.append(int(ErrorCode.LEADER_NOT_AVAILABLE))
                return
            connection = self.broker.connection(self.address(leader))
            result = self.broker.produce(topic, batch(value), to=connection, timeout_ms=3_000)
        except Failed:
            writes.errors.append(CONNECTION_LOST)
            return
        if result.error_code == ErrorCode.NONE:
            writes.acknowledged[value] = result.base_offset
        else:
            writes.errors.append(int(result.error_code))

    def write_some(self, topic: Topic, writes: Writes, acknowledged: int) -> None:
        """Write until `acknowledged` more records are acknowledged."""
        wanted = len(writes.acknowledged) + acknowledged
        until = time.monotonic() + STATE_WITHIN_S
        while len(writes.acknowledged) < wanted:
            if time.monotonic() > until:
                missing = wanted - len(writes.acknowledged)
                raise Failed(f"{missing} of {acknowledged} records are not acknowledged within {STATE_WITHIN_S:g} s")
            failures = len(writes.errors)
            self.write(topic, writes)
            if len(writes.errors) > failures:
                time.sleep(RETRY_S)

    def expect_kept(self, topic: Topic, writes: Writes) -> None:
        """Require that each acknowledged record is at its reported offset, and that the log holds only records that were sent.

        Retries for a while: a new leader's high watermark may lag until its followers fetch.
        """
        stored: dict[int, bytes | None] = {}
        lost: list[bytes] = []

        def all_are_there() -> bool:
            nonlocal stored, lost
            stored = dict(enumerate(values(self.broker.log(topic))))
            lost = [value for value, offset in writes.acknowledged.items() if stored.get(offset) != value]
            return not lost

        with suppress(NoAnswer):
            self.broker.eventually(all_are_there, "all that was acknowledged can be read", within_s=SHOWN_WITHIN_S)
        reported = f"{len(writes.acknowledged)} acknowledged records lie at their offsets"
        self.broker.expect(not lost, reported if not lost else f"acknowledged records are lost: {lost[:5]}")
        strange = set(stored.values()) - set(writes.sent)
        self.broker.expect(not strange, "nothing else than what was sent is in the log")
