"""What is written to a simulated ZooKeeper, and which requests brokers take, is judged."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from linearizability.simulation.world import Violation
from linearizability.simulation.znode_agreement import ZnodeAgreement
from linearizability.simulation.znode_tree import ZnodeTree
from reference.protocol.primitives import NodeId
from reference.zookeeper import znodes
from reference.zookeeper.operations import Check, Create, Multi, SetData, ZnodeVersion

LIVE, OVER = 1, 2


def agreement(tree: ZnodeTree) -> ZnodeAgreement:
    return ZnodeAgreement(tree, lambda session: session == LIVE, lambda *_: None, lambda *_: None)


def taken(action: str, controller_epoch: int, broker_epoch: int, controller: int = 1) -> tuple[str, dict[str, Any]]:
    return action, {
        "args": {"controller": controller, "controllerEpoch": controller_epoch, "brokerEpoch": broker_epoch}
    }


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


def test_requests_of_two_controllers_in_one_epoch_are_found():
    judge = agreement(ZnodeTree())
    judge.on_action(3, *taken("TakeUpdateMetadata", 4, -1, controller=1))
    judge.on_action(2, *taken("TakeUpdateMetadata", 5, -1, controller=2))
    with pytest.raises(Violation, match="two-controllers-in-epoch"):
        judge.on_action(2, *taken("TakeLeaderAndIsr", 5, -1, controller=1))


def test_a_write_in_an_epoch_that_another_session_counted_is_found():
    tree = ZnodeTree()
    judge = ZnodeAgreement(tree, lambda session: True, lambda *_: None, lambda *_: None)
    tree.on_transaction, tree.on_write = judge.on_transaction, judge.on_write
    topics = znodes.encode_assignment(znodes.Assignment({0: (NodeId(1), NodeId(2))}, UUID(int=7)))
    partitions = znodes.partitions_path("orders")
    for path, data in (
        ("/brokers", b""), (znodes.TOPICS, b""), (znodes.topic_path("orders"), topics), (partitions, b""),
        (f"{partitions}/0", b""), (znodes.CONTROLLER_EPOCH, b"3"),
    ):  # fmt: skip
        tree.carry_out(Create(path, data), LIVE)
    state = b'{"leader":1,"version":1,"isr":[1],"leader_epoch":3,"controller_epoch":3}'
    tree.carry_out(Create(znodes.state_path("orders", 0), state), LIVE)
    with pytest.raises(Violation, match="two-controllers-in-epoch"):
        tree.carry_out(SetData(znodes.state_path("orders", 0), state, ZnodeVersion(0)), OVER)


def test_a_replica_that_is_deleted_as_a_member_of_the_isr_is_found():
    tree, topic = ZnodeTree(), UUID(int=7)
    judge = agreement(tree)
    assignment = znodes.Assignment({0: (NodeId(1), NodeId(2))}, topic)
    paths = (znodes.TOPICS, znodes.topic_path("orders"), znodes.partitions_path("orders"))
    for path in ("/brokers", *paths, f"{paths[2]}/0", "/admin", znodes.DELETE_TOPICS):
        data = znodes.encode_assignment(assignment) if path == paths[1] else b""
        tree.carry_out(Create(path, data), LIVE)
    state = b'{"leader":1,"version":1,"isr":[1],"leader_epoch":3,"controller_epoch":0}'
    tree.on_write = judge.on_write
    tree.carry_out(Create(znodes.state_path("orders", 0), state), LIVE)
    judge.on_deletion(2, "orders", 0, topic)
    judge.on_deletion(1, "orders", 0, UUID(int=8))
    with pytest.raises(Violation, match="deleted-in-sync"):
        judge.on_deletion(1, "orders", 0, topic)
    tree.carry_out(Create(f"{znodes.DELETE_TOPICS}/orders", b""), LIVE)
    judge.on_deletion(1, "orders", 0, topic)
