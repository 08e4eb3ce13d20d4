"""The nodes of a target, observed and stopped one by one; all are restored at the end.

    with cluster(broker) as nodes:
        topic = nodes.topic(1, 2)                # a partition on nodes 1 and 2; node 1 leads
        nodes.kill(1)
        nodes.await_state(topic, lambda state: state.leader == 2, "node 2 leads")

The state of a partition is what Metadata of a live node reports. After a node was frozen or stopped, requests go to another one.
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
"""What cannot be read by then, once a leader serves, is lost."""
PATIENT_SESSION_MS = 30_000
SESSION_MS = 6_000
QUICK = {
    "auto.leader.rebalance.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": str(LAG_MS),
}
"""Short bounds, for who leaves an ISR and for who counts as dead."""
PATIENT = QUICK | {"broker.session.timeout.ms": str(PATIENT_SESSION_MS)}
"""Who is silent leaves the ISRs long before it counts as dead: so the two can be distinguished."""
STATE_WITHIN_S = 60.0
"""How long a state that the bounds above make come may take on a machine that is busy: also where a leader asks for a smaller
ISR at a controller of before, which is frozen, and at the present one after 30 s (as in FORWARDED_WITHIN_S)."""
WHOLE_WITHIN_S = 240.0
"""How long it may take until every node reports one that has started: Kafka 4.0.2 took 140 s on two cores with a load of 60."""
RETRY_S = 0.05
"""How long a writer waits after an error."""
NO_ID = -1
PREFERRED, UNCLEAN = 0, 1
"""Election types of ElectLeaders."""
CONNECTION_LOST = "the connection"
"""Stands in for an error code where no answer came."""


@contextmanager
def cluster(broker: Broker) -> Generator[JudgedCluster]:
    """The target's nodes; whatever was done to them is undone at the end."""
    nodes = JudgedCluster(broker)
    try:
        yield nodes
    finally:
        nodes.mend()


class JudgedCluster(DescribedCluster):
    """The nodes of a target of which all live."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.addresses = self._await_whole()
        """Node -> where clients reach it; all of them, also those that are down later."""
        self.frozen: set[int] = set()
        self.down: set[int] = set()
        self.is_cut = False
        """Whether the network is cut."""

    def _await_whole(self) -> dict[int, tuple[str, int]]:
        """The brokers, once all are there. What is judged has its own time after it.

        Skips where one does not come: a machine that is too busy for its heartbeats fences a broker that nothing was done to,
        and one that does not come back from what was done to it has failed the requirement that did so (`mend`).
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

        A fault on a node that is not the active controller costs no election of another one. Where DescribeQuorum is not
        served, Metadata names the active controller: so it is with ZooKeeper, where no ISR shrinks while that node is frozen.
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
        """Freeze nodes for a while. What only holds while they are in the ISRs still is seen in a `Moment`."""
        self.pause(*nodes)
        try:
            yield Moment()
        finally:
            self.resume(*(set(nodes) & self.frozen))

    def pause(self, *nodes: int) -> None:
        """Freeze nodes: their sockets stay, and nothing answers."""
        self._leave(nodes)
        self.frozen |= set(nodes)
        for node in nodes:
            self.broker.target.pause(node)

    def freeze_out(self, topic: Topic, follower: int, value: bytes) -> State:
        """Freeze a follower, write a record with acks=1, and wait until the follower is out of the ISR.

        A follower lags behind only where there is something to fetch. It may have this record still: a fetch that waited at
        the leader is answered by it, and the follower receives the answer when it goes on.
        """
        self.pause(follower)
        self.broker.append(topic, batch(value), acks=1)
        return self.await_state(topic, lambda state: follower not in state.isr, f"node {follower} is not in sync")

    def resume(self, *nodes: int) -> None:
        """Let frozen nodes go on."""
        for node in nodes:
            self.broker.target.resume(node)
        self.frozen -= set(nodes)

    def kill(self, *nodes: int) -> None:
        """End nodes at once."""
        self._leave(nodes)
        self.down |= set(nodes)
        for node in nodes:
            self.broker.target.kill(node)
        self.frozen -= set(nodes)

    def lose_power(self, node: int) -> None:
        """End a node at once, and take the bytes that it has not yet flushed."""
        self._leave([node])
        self.down.add(node)
        self.broker.target.power_loss([node])

    def stop(self, node: int) -> None:
        """End a node in good order; returns when it is gone."""
        self._leave([node])
        self.down.add(node)
        self.broker.target.stop(node)

    def stop_during(self, node: int, work: Callable[[], None]) -> None:
        """End a node in good order while something else goes on; returns when both are done."""
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
        """Start nodes that are down, and wait until every node knows them."""
        for node in nodes:
            self.broker.target.restart(node, wait=False)
        self.down -= set(nodes)
        self.await_known(*nodes)

    def configure(self, node: int, changes: Mapping[str, str]) -> None:
        """End a node in good order and start it with other broker properties; waits until every node knows it."""
        self.stop(node)
        self.broker.target.config(node, changes)
        self.down.discard(node)
        self.await_known(node)

    def cut_off(self, node: int) -> None:
        """Cut a node off from the others, and from the ZooKeeper, where one coordinates them. The suite still reaches every one.

        Skips where the ZooKeeper is not on the network that the target cuts: the node would be led by it as before.
        """
        others = [other for other in self.addresses if other != node]
        if self.broker.subject.by_zookeeper:
            if self.broker.target.coordinator is None:
                self.broker.skip("needs cuts between a broker and the ZooKeeper, which the target does not offer")
            others.append(self.broker.target.coordinator)
        self.is_cut = True
        self.broker.target.partition([[node], others])

    def join(self) -> None:
        """Join the network again."""
        self.broker.target.heal()
        self.is_cut = False

    def mend(self) -> None:
        """Whole again: every node runs, and every node knows all of them.

        Errors: Failed where a node does not come back.
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
        """Ask other nodes than these from now on."""
        gone = {self.addresses[node] for node in nodes}
        self.broker.hang_up(gone)
        left = [node for node in sorted(self.addresses) if node not in self.frozen | self.down | set(nodes)]
        self.broker.entrance = self.addresses[left[0]] if left else None
        self.broker.hurt = {
            self.addresses[node] for node in {*self.frozen, *self.down, *nodes} if node in self.addresses
        }

    # ---- looking

    def address(self, node: int) -> tuple[str, int]:
        """Where clients reach a node."""
        if node not in self.addresses:
            raise Failed(f"node {node} is not among the brokers {sorted(self.addresses)} that Metadata reported")
        return self.addresses[node]

    def node_at(self, address: tuple[str, int]) -> int:
        """The node that clients reach at an address, as that of a coordinator."""
        return only([node for node, place in self.addresses.items() if place == address], f"node at {address}")

    @property
    def reachable(self) -> list[int]:
        """The nodes that were not hurt, or have been mended."""
        return [node for node in sorted(self.addresses) if node not in self.frozen | self.down]

    def living(self, via: int | None = None) -> list[int]:
        """The brokers that Metadata reports: those that are not fenced."""
        return sorted(self._living(self.address(via) if via is not None else None))

    def _living(self, to: tuple[str, int] | None = None) -> dict[int, tuple[str, int]]:
        return {one.node_id: (one.host, one.port) for one in self.broker.metadata([], to=to).brokers}

    def _whole(self) -> dict[int, tuple[str, int]] | None:
        """The brokers, once there are as many as at the target's start: one that was frozen comes back by itself."""
        living = self._living()
        return living if len(living) >= self.broker.subject.nodes else None

    def await_known(self, *nodes: int) -> None:
        """Wait until every node that runs reports these nodes."""
        for witness in self.reachable:
            self.broker.eventually(
                lambda witness=witness: self._reports(witness, nodes),
                f"node {witness} reports the brokers {sorted(nodes)}",
                within_s=WHOLE_WITHIN_S,
            )

    def _reports(self, witness: int, nodes: Collection[int]) -> bool:
        """Whether a node reports these. Errors: Failed where one has ended by itself: it does not come back."""
        if ended := [node for node in nodes if node not in self.down and self.broker.subject.has_ended(node)]:
            raise Failed(f"node {ended[0]} has ended by itself")
        return self.try_living(witness) >= set(nodes)

    def try_living(self, via: int) -> set[int]:
        """The brokers that a node reports; none while it does not answer."""
        with suppress(Failed):
            return set(self.living(via))
        return set()

    def state(self, topic: Topic, via: int | None = None) -> State:
        """Partition 0 as Metadata reports it, asked of one node or of any."""
        asked = [MetadataRequest.MetadataRequestTopic(name=topic.name)]
        answer = self.broker.metadata(asked, to=self.address(via) if via is not None else None)
        found = only(only(answer.topics, f"entry for {topic.name}").partitions, "partition")
        return State(found.leader_id, found.leader_epoch, tuple(found.replica_nodes), frozenset(found.isr_nodes))

    def await_state(
        self, topic: Topic, wanted: Callable[[State], bool], what: str, *, within_s: float = STATE_WITHIN_S
    ) -> State:
        """Wait until the partition is in a state; gives the first such state that was seen."""

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
        """Wait until one of these nodes leads, in an epoch above the given one, and serves."""
        reported = " or ".join(map(str, nodes))
        state = self.await_state(topic, lambda one: one.leader in nodes and one.epoch > above, f"node {reported} leads")

        def learned() -> bool:
            """A leader that serves reads before it knows that it leads may refuse a write."""
            with suppress(Failed):
                known = self.state(topic, via=state.leader)
                return (known.leader, known.epoch) == (state.leader, state.epoch) or known.epoch > state.epoch
            return False

        self.broker.eventually(learned, f"node {state.leader} knows that it leads", within_s=STATE_WITHIN_S)
        self.await_served(topic)
        return state

    @built_on("MET-08")
    def await_leaderless(self, topic: Topic) -> State:
        """Wait until Metadata says that no replica leads the partition."""
        return self.await_state(topic, lambda state: state.leader == NO_ID, "no replica leads")

    def await_served(self, topic: Topic) -> None:
        """Wait until the leader answers for the partition, and knows its high watermark."""

        def served() -> bool:
            with suppress(Failed):
                return self.broker.end_offset(topic) >= 0
            return False

        def shows_all() -> bool:
            """Where ListOffsets gives the log end, a new leader may show less until its followers have asked for more."""
            with suppress(Failed):
                shown = self.broker.fetch(topic, self.broker.start_offset(topic)).high_watermark
                return shown >= self.broker.end_offset(topic)
            return False

        self.broker.eventually(served, f"the leader of {topic.name} serves it", within_s=STATE_WITHIN_S)
        with suppress(NoAnswer):
            self.broker.eventually(shows_all, f"the leader of {topic.name} shows all", within_s=SHOWN_WITHIN_S)

    # ---- topics and records

    def topic(self, *replicas: int, configs: Mapping[str, str] | None = None, in_sync: int = 1) -> Topic:
        """A topic of one partition on these nodes, all in sync; the first one leads. `in_sync` is its min.insync.replicas."""
        name = self.broker.unused_name()
        pinned = self.broker.subject.profile.pinned
        given = pinned | {"retention.ms": "-1", "min.insync.replicas": str(in_sync)} | dict(configs or {})

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
        """AlterPartitionReassignments of partition 0; gives the partition's result, whatever it is."""
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
        """ElectLeaders for partition 0; gives its error code."""
        asked = ElectLeadersRequest.TopicPartitions(topic=topic.name, partitions=[0])
        request = ElectLeadersRequest(election_type=kind, topic_partitions=[asked], timeout_ms=30_000)
        answer = self.broker.call(request, timeout_s=30)
        self.broker.expect_error(answer.error_code, ErrorCode.NONE, what="ElectLeaders")
        found = only(answer.replica_election_results, "topic in the answer")
        return only(found.partition_result, "partition in the answer").error_code

    @built_on("REP-05")
    def await_fenced(self, *nodes: int) -> None:
        """Wait until no node that is reached names these in Metadata."""
        self.broker.eventually(
            lambda: not any({*nodes} & {*self.living(witness)} for witness in self.reachable),
            f"node {' and '.join(map(str, nodes))} is fenced",
            within_s=STATE_WITHIN_S,
        )

    def lead(self, topic: Topic, node: int) -> State:
        """Let another replica lead, without a fault, and wait until it serves."""
        before = self.state(topic)
        self.change_leader(topic, node)
        return self.await_leader(topic, node, above=before.epoch)

    @built_on("ELE-04")
    def change_leader(self, topic: Topic, node: int) -> None:
        """Let another replica lead, without a fault: make it the preferred one, elect, and wait until it is known."""
        before = self.state(topic)
        self.reorder(topic, node, *(other for other in before.replicas if other != node))
        self.broker.expect_error(self.elect(topic), ErrorCode.NONE, what="the preferred leader's election")
        self.await_state(topic, lambda one: one.leader == node and one.epoch > before.epoch, f"node {node} leads")

    @built_on("ELE-14")
    def reorder(self, topic: Topic, *order: int) -> None:
        """Let the same replicas have another order, and wait until they have it."""
        self.broker.expect_error(self.reassign(topic, *order).error_code, ErrorCode.NONE, what="another order")
        self.await_state(topic, lambda one: one.replicas == order, f"the replicas are in the order {order}")

    def write(self, topic: Topic, writes: Writes) -> None:
        """One record with acks=-1 to the present leader; the outcome is recorded in `writes`."""
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
        """Go on until so many more records were acknowledged."""
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
        """Every record that was acknowledged lies at the offset that was reported, and nothing else than what was sent.

        A leader that has just been elected may know of less than is committed, until its followers ask for more.
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

    def expect_leader_named(self, topic: Topic, reported: tuple[int, int], endpoints: Collection[Any]) -> None:
        """An answer names the leader of partition 0, its epoch, and where it is reached (KIP-951)."""
        state = self.state(topic)
        self.broker.expect_equal("the leader and epoch that are named", reported, (state.leader, state.epoch))
        places = {one.node_id: (one.host, one.port) for one in endpoints}
        self.broker.expect_equal("where the leader is", places.get(state.leader), self.address(state.leader))
