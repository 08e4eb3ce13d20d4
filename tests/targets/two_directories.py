"""Brokers with two log directories; made for tests."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.reference import ReferenceCluster
from reference.protocol.primitives import NodeId
from reference.storage.checkpoints import MetaProperties, write_meta_properties
from reference.storage.posix_disk import PosixDisk


def second_of(member: Member) -> Path:
    return member.folder / "second"


class TwoDirectories(ClusterTarget):
    """Nodes with two log directories."""

    def properties(self, member: Member) -> dict[str, str]:
        return super().properties(member) | {"log.dirs": f"{member.data},{second_of(member)}"}

    def format(self, member: Member) -> None:
        super().format(member)
        second_of(member).mkdir(exist_ok=True)
        id = MetaProperties(self.cluster_id, NodeId(member.node.id), uuid.uuid4())
        write_meta_properties(PosixDisk(), second_of(member), id)


class Kafka(TwoDirectories, KafkaCluster):
    pass


class Reference(TwoDirectories, ReferenceCluster):
    pass


KINDS = [Kafka, Reference]


def opened(kind: type[TwoDirectories], folder: Path, nodes: int = 1) -> TwoDirectories:
    """A cluster, not yet started."""
    version: dict[str, Any] = {"version": "4.3.1"} if issubclass(kind, Kafka) else {}
    return kind(kind.__name__.lower(), nodes=nodes, folder=folder, **version)
