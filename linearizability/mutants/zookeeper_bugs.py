"""Bugs in the coordination by ZooKeeper that Apache Kafka once had."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.registry import mutant


@mutant(
    "kip-380",
    "reference.node.zookeeper.orders:is_stale_broker_epoch",
    "A broker takes requests of the controller that were for its former registration (before KIP-380).",
    fuzz=True,
    nodes=3,
    breaks=("taken-for-former-registration",),
    coordination="zookeeper",
)
def unchecked_broker_epoch(original: Any, asked: int, own: int) -> bool:
    return False
