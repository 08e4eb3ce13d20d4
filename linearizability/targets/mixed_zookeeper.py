"""One cluster of Apache Kafka's brokers and the reference's, all coordinated by one ZooKeeper.

    mixed:kafka-zk:3.9.2,reference-zk,kafka-zk:3.9.2        any of the three may be the controller

Each broker has the properties of its kind. The reference speaks the inter-broker protocol of 3.9 alone, so no other release is
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.hosts import Host
from linearizability.targets.mixed import MixedCluster
from linearizability.targets.reference import ZooKeeperReferenceCluster
from linearizability.targets.target import WrongTarget
from linearizability.targets.zookeeper import ByZooKeeper
from linearizability.targets.zookeeper_kafka import ZooKeeperKafkaCluster, version_of

BESIDE_THE_REFERENCE = (3, 9)


class MixedZooKeeperCluster(ByZooKeeper, MixedCluster):
    """`mixed:KIND,KIND,...` of `reference-zk` and `kafka-zk:VERSION`."""

    def __init__(
        self,
        spec: str,
        kinds: Sequence[ByZooKeeper],
        *,
        folder: Path,
        config: Mapping[str, str] | None = None,
        hosts: Sequence[Host] | None = None,
    ) -> None:
        """`kinds` are clusters that are never opened, one a node. Errors: WrongTarget."""
        super().__init__(spec, kinds=kinds, controllers=[True] * len(kinds), folder=folder, config=config, hosts=hosts)
        for kind in kinds:
            kind.zookeeper = self.zookeeper

    def _refuse_older(self) -> None:
        """Errors: WrongTarget where a release beside the reference speaks another inter-broker protocol."""
        others = [
            each.spec
            for each in self.kinds
            if isinstance(each, ZooKeeperKafkaCluster) and version_of(each.version) != BESIDE_THE_REFERENCE
        ]
        if others and any(isinstance(each, ZooKeeperReferenceCluster) for each in self.kinds):
            raise WrongTarget(
                f"{self.spec!r}: the reference speaks the inter-broker protocol of 3.9, and not that of {others[0]}"
            )

    def prepare(self) -> None:
        for kind in self.kinds:
            self._prepare(kind)

    def _prepare(self, kind: ClusterTarget) -> None:
        super()._prepare(kind)
        assert isinstance(kind, ByZooKeeper)
        kind.zookeeper = self.zookeeper

    def properties(self, member: Member) -> dict[str, str]:
        return self._kind(member).properties(member)

    def gives_up(self, node: int) -> bool:
        kind = self.kinds[node - 1]
        return isinstance(kind, ByZooKeeper) and kind.gives_up(node)

    def zookeeper_command(self) -> tuple[Sequence[Path], Sequence[str]]:
        kind = self.kinds[0]
        assert isinstance(kind, ByZooKeeper)
        return kind.zookeeper_command()
