"""Which controller epoch a broker takes as its own."""

from __future__ import annotations

import pytest

from reference.node.zookeeper.election import Election
from reference.protocol.primitives import NodeId
from reference.zookeeper import znodes
from reference.zookeeper.operations import Create, Delete, Multi, SetData, ZnodeVersion
from tests.zookeeper.local import NOW, OTHER, OWN, LocalZooKeeper

NODE = NodeId(1)


class Candidate:
    """Broker 1, and what its election has come to."""

    def __init__(self) -> None:
        self.zookeeper = LocalZooKeeper()
        self.zookeeper.create(znodes.CONTROLLER_EPOCH, b"4")
        self.won: list[tuple[int, bool]] = []
        self.losses = 0
        self.election = Election(
            NODE,
            self.zookeeper.session,
            lambda epoch, version, is_new, now: self.won.append((epoch, is_new)),
            self._lose,
            lambda level, text: None,
        )

    def _lose(self, now: int) -> None:
        self.losses += 1

    def elect(self, session: int, epoch: int) -> None:
        """By another client: /controller of a session, and the epoch, in one transaction."""
        found = self.zookeeper.tree.find(znodes.CONTROLLER_EPOCH)
        assert found is not None
        creation = Create(znodes.CONTROLLER, znodes.encode_controller(NODE, NOW), ephemeral=True)
        counting = SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), ZnodeVersion(found.version))
        self.zookeeper.tree.carry_out(Multi((creation, counting)), session)
        self.zookeeper._fire()

    def delete(self) -> None:
        """An operator deletes /controller."""
        self.zookeeper.tree.carry_out(Delete(znodes.CONTROLLER), OTHER)
        self.zookeeper._fire()


def test_a_controller_that_reconnects_has_the_epoch_of_its_znode():
    candidate = Candidate()
    candidate.elect(OWN, 5)
    candidate.election.look(NOW)
    candidate.zookeeper.settle()
    assert (candidate.won, candidate.losses) == ([(5, False)], 0)


@pytest.mark.parametrize("reads", [1, 2])
def test_an_epoch_that_a_later_controller_counted_is_not_taken(reads: int):
    """The broker has read that /controller is its own; before the epoch is read, or its answer comes, another one is elected."""
    candidate = Candidate()
    candidate.elect(OWN, 5)
    candidate.election.look(NOW)
    for _ in range(reads):
        candidate.zookeeper.step()
    before = [*candidate.won]
    candidate.delete()
    candidate.elect(OTHER, 6)
    candidate.zookeeper.settle()
    assert candidate.won == before == ([(5, False)] if reads == 2 else [])
    assert candidate.losses == 1
