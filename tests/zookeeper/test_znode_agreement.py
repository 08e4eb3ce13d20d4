"""What is written to a simulated ZooKeeper, and which requests brokers take, is judged."""

from __future__ import annotations

from typing import Any

import pytest

from linearizability.simulation.world import Violation
from linearizability.simulation.znode_agreement import ZnodeAgreement
from linearizability.simulation.znode_tree import ZnodeTree
from reference.zookeeper.operations import Check, Create, Multi, ZnodeVersion

LIVE, OVER = 1, 2


def agreement(tree: ZnodeTree) -> ZnodeAgreement:
    return ZnodeAgreement(tree, lambda session: session == LIVE, lambda *_: None, lambda *_: None)


def taken(action: str, controller_epoch: int, broker_epoch: int) -> tuple[str, dict[str, Any]]:
    return action, {"args": {"controllerEpoch": controller_epoch, "brokerEpoch": broker_epoch}}


def test_a_write_of_a_session_that_is_over_is_found():
    tree = ZnodeTree()
    tree.on_transaction = agreement(tree).on_transaction
    tree.carry_out(Create("/a", b""), LIVE)
    assert tree.carry_out(Multi((Check("/a", ZnodeVersion(7)), Create("/b", b""))), OVER).failed == 0
    with pytest.raises(Violation, match="written-by-expired-session"):
        tree.carry_out(Create("/b", b""), OVER)


def test_requests_for_a_former_registration_or_of_a_deposed_controller_are_found():
    judge = agreement(ZnodeTree())
    judge.on_action(3, "RegisterBroker", {"args": {"brokerEpoch": 20}})
    judge.on_action(3, *taken("TakeUpdateMetadata", 4, 20))
    judge.on_action(3, *taken("TakeLeaderAndIsr", 4, -1))
    with pytest.raises(Violation, match="taken-for-former-registration"):
        judge.on_action(3, *taken("TakeLeaderAndIsr", 4, 19))
    with pytest.raises(Violation, match="taken-from-deposed-controller"):
        judge.on_action(3, *taken("TakeStopReplica", 3, 20))
    judge.end_process(3)
    judge.on_action(3, *taken("TakeStopReplica", 3, -1))
