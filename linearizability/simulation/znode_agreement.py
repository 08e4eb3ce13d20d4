"""Checks what brokers and controllers write to a simulated ZooKeeper, and which controller requests brokers take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from uuid import UUID

from linearizability.simulation.partition_oracle import Decided
from linearizability.simulation.world import Violation
from linearizability.simulation.znode_tree import Znode, ZnodeTree
from reference.zookeeper import znodes
from reference.zookeeper.operations import NO_SESSION, SessionId

NO_LEADER = -1
TAKES = ("TakeLeaderAndIsr", "TakeStopReplica", "TakeUpdateMetadata")

OnDecision = Callable[[str, UUID, int, Decided, Mapping[int, int]], None]
"""Takes topic, id, partition, what was decided, and the broker epochs of those that are registered."""


class ZnodeAgreement:
    """Judges the writes of a cluster."""

    def __init__(
        self,
        tree: ZnodeTree,
        is_live: Callable[[SessionId], bool],
        decided: OnDecision,
        registered: Callable[[int, int], None],
    ) -> None:
        self._tree = tree
        self._is_live = is_live
        self._decided = decided
        self._registered = registered
        self._states: dict[tuple[UUID, int], znodes.State] = {}
        self._epochs: dict[int, int] = {}
        self._producer_ids = 0
        self._learned: dict[int, int] = {}
        """Of each process the broker epoch that it knows."""
        self._newest: dict[int, int] = {}
        """Of each process the newest controller epoch of which it has taken a request."""
        self._controllers: dict[int, int] = {}
        """Of each controller epoch the broker whose requests were taken in it."""
        self._session: SessionId = NO_SESSION
        """That of the transaction that is being carried out."""
        self._counter: SessionId = NO_SESSION
        """The session that counted the newest controller epoch: its broker is the controller in it, and no other."""

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """A step of a process. Errors: Violation."""
        if action == "RegisterBroker":
            self._learned[number] = row["args"]["brokerEpoch"]
        elif action in TAKES:
            asked, own = row["args"]["brokerEpoch"], self._learned.get(number, -1)
            if 0 <= asked < own:
                self._broken("taken-for-former-registration", f"node {number} of broker epoch {own}: {action} {row}")
            epoch, newest = row["args"]["controllerEpoch"], self._newest.get(number, -1)
            if epoch < newest:
                text = f"node {number} knows controller epoch {newest}: {action} {row}"
                self._broken("taken-from-deposed-controller", text)
            self._newest[number] = epoch
            asker = row["args"]["controller"]
            if self._controllers.setdefault(epoch, asker) != asker:
                text = f"controller epoch {epoch} is node {self._controllers[epoch]}'s: node {number}: {action} {row}"
                self._broken("two-controllers-in-epoch", text)

    def on_deletion(self, number: int, name: str, index: int, topic_id: UUID) -> None:
        """A broker deletes its replica of a topic: never as a member of the ISR, but with the topic. Errors: Violation."""
        topic_path = znodes.topic_path(name)
        topic, state = self._tree.find(topic_path), self._states.get((topic_id, index))
        is_there = topic is not None and znodes.decode_assignment(topic_path, topic.data).topic_id == topic_id
        is_to_go = self._tree.find(f"{znodes.DELETE_TOPICS}/{name}") is not None
        if is_there and not is_to_go and state is not None and number in state.isr:
            self._broken("deleted-in-sync", f"node {number} deletes its replica of {name}-{index}: {state}")

    def end_process(self, number: int) -> None:
        self._learned.pop(number, None)
        self._newest.pop(number, None)

    def on_transaction(self, session: SessionId) -> None:
        """Errors: Violation."""
        if not self._is_live(session):
            self._broken("written-by-expired-session", f"session {session:#x} is over")
        self._session = session

    def on_write(self, path: str, znode: Znode | None) -> None:
        """Errors: Violation."""
        if path.startswith(znodes.BROKER_IDS + "/"):
            self._take_broker(int(path.rpartition("/")[2]), znode)
        elif path == znodes.CONTROLLER_EPOCH:
            self._counter = self._session
        elif path.endswith("/state") and znode is not None:
            self._take_state(path, znode)
        elif path == znodes.PRODUCER_IDS and znode is not None and znode.data:
            following = znodes.decode_next_producer_id(path, znode.data)
            if following <= self._producer_ids:
                self._broken("producer-ids-back", f"from {self._producer_ids} to {following}")
            self._producer_ids = following

    def _take_broker(self, broker: int, znode: Znode | None) -> None:
        if znode is None:
            self._epochs.pop(broker, None)
        else:
            self._epochs[broker] = znode.czxid
            self._registered(broker, znode.czxid)

    def _take_state(self, path: str, znode: Znode) -> None:
        _, _, _, name, _, index, _ = path.split("/")
        topic = self._tree.find(znodes.topic_path(name))
        assert topic is not None
        assignment = znodes.decode_assignment(path, topic.data)
        replicas = tuple(assignment.partitions[int(index)])
        now = znodes.decode_state(path, znode.data)
        place = assignment.topic_id, int(index)
        before = self._states.get(place)
        self._states[place] = now
        self._judge(f"{name}-{index}", before, now, replicas)
        decided = Decided(znode.version, now.leader, now.leader_epoch, replicas, now.isr)
        self._decided(name, place[0], place[1], decided, self._epochs)

    def _judge(self, name: str, before: znodes.State | None, now: znodes.State, replicas: tuple[int, ...]) -> None:
        """Errors: Violation."""
        epoch = self._tree.find(znodes.CONTROLLER_EPOCH)
        newest = int(epoch.data) if epoch is not None else 0
        if now.controller_epoch != newest:
            text = f"{name}: a controller of epoch {now.controller_epoch} writes {now}, and {newest} is the newest"
            self._broken("written-by-deposed-controller", text)
        if self._counter not in (NO_SESSION, self._session):
            text = f"{name}: session {self._session:#x} writes {now}, and {self._counter:#x} counted the epoch"
            self._broken("two-controllers-in-epoch", text)
        if not now.isr or not {*now.isr} <= {*replicas}:
            self._broken("member-without-replica", f"{name}: {now} of {list(replicas)}")
        if now.leader != NO_LEADER and now.leader not in now.isr:
            self._broken("leader-not-in-isr", f"{name}: {now}")
        if before is None:
            return
        if now.leader_epoch < before.leader_epoch:
            self._broken("leader-epoch-back", f"{name}: {before} became {now}")
        if before.leader != now.leader and before.leader_epoch == now.leader_epoch:
            self._broken("leader-without-epoch", f"{name}: {before} became {now}")

    def _broken(self, rule: str, text: str) -> NoReturn:
        raise Violation(rule, text)
