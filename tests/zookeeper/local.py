"""A ZooKeeper for one client, step by step: each answer comes when the test lets it."""

from __future__ import annotations

from collections import deque

from linearizability.simulation.znode_tree import ZnodeTree
from reference.protocol.primitives import NodeId, TimestampMs
from reference.zookeeper.operations import (
    Answered,
    AskZooKeeper,
    Create,
    GetChildren,
    GetData,
    Operation,
    SessionConnected,
    Watched,
    ZooKeeperEffect,
)
from reference.zookeeper.session import Session

OWN, OTHER = 1, 2
"""Sessions."""
NOW = TimestampMs(0)


def nodes(*numbers: int) -> list[NodeId]:
    return [NodeId(number) for number in numbers]


class LocalZooKeeper:
    """The tree, and the client's session."""

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        self.session = Session(self._carry_out)
        self._asked: deque[AskZooKeeper] = deque()
        self._watches: set[tuple[str, bool]] = set()
        self.session.take(SessionConnected(OWN), NOW)

    def create(self, path: str, data: bytes = b"", session: int = 0) -> None:
        """Create a znode as another client, with the znodes above it."""
        parts = path.strip("/").split("/")
        for end in range(1, len(parts)):
            self.tree.carry_out(Create("/" + "/".join(parts[:end]), b""), OTHER)
        self.tree.carry_out(Create(path, data, ephemeral=session != 0), session)
        self._fire()

    @property
    def next(self) -> Operation:
        """The oldest operation that is not answered."""
        return self._asked[0].operation

    def step(self) -> Operation:
        """Answer the oldest operation; watches that it triggers come before the answer."""
        asked = self._asked.popleft()
        result = self.tree.carry_out(asked.operation, OWN)
        if isinstance(asked.operation, GetData | GetChildren) and asked.operation.watch:
            self._watches.add((asked.operation.path, isinstance(asked.operation, GetChildren)))
        self._fire()
        self.session.take(Answered(asked.number, result), NOW)
        return asked.operation

    def settle(self) -> None:
        while self._asked:
            self.step()

    def _carry_out(self, effect: ZooKeeperEffect) -> None:
        if isinstance(effect, AskZooKeeper):
            self._asked.append(effect)

    def _fire(self) -> None:
        changed, self.tree.changed = {*self.tree.changed}, []
        for place in sorted(self._watches & changed):
            self._watches.discard(place)
            self.session.take(Watched(place[0]), NOW)
