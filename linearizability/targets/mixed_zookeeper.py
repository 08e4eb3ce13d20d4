"""One cluster of Apache Kafka's brokers and the reference's, all coordinated by one ZooKeeper.

    mixed:kafka-zk:3.9.2,reference-zk,kafka-zk:2.8.2        any of the three may be the controller

Each broker has the properties of its kind. All use one inter-broker protocol: that of 3.9, or, with a release before 3.9,
that of 2.8 or of an older release. The reference supports these two, so no release before 2.8 can be beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.hosts import Host
from linearizability.targets.mixed import MixedCluster, Role
from linearizability.targets.reference import ZooKeeperReferenceCluster
from linearizability.targets.target import WrongTarget
from linearizability.targets.zookeeper import ByZooKeeper
from linearizability.targets.zookeeper_kafka import ZooKeeperKafkaCluster, version_of

FIRST_BESIDE_THE_REFERENCE, LAST = (2, 8), (3, 9)
PROTOCOL = "inter.broker.protocol.version"


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
        """`kinds` has one cluster for each node, which is never opened. Errors: WrongTarget."""
        super().__init__(spec, kinds=kinds, roles=[Role.BOTH] * len(kinds), folder=folder, config=config, hosts=hosts)
        for kind in kinds:
            kind.zookeeper = self.zookeeper

    def _refuse_older(self) -> None:
        """Errors: WrongTarget where a release beside the reference supports only older inter-broker protocols."""
        older = [each.spec for each in self._releases if version_of(each.version) < FIRST_BESIDE_THE_REFERENCE]
        if older and any(isinstance(each, ZooKeeperReferenceCluster) for each in self.kinds):
            raise WrongTarget(
                f"{self.spec!r}: the reference speaks the inter-broker protocols of 2.8 and 3.9, and {older[0]} neither"
            )

    @property
    def _releases(self) -> list[ZooKeeperKafkaCluster]:
        return [each for each in self.kinds if isinstance(each, ZooKeeperKafkaCluster)]

    @property
    def _protocol(self) -> dict[str, str]:
        """The setting of the oldest release's inter-broker protocol; empty where it is every broker's default."""
        oldest = min((version_of(each.version) for each in self._releases), default=LAST)
        return {} if oldest >= LAST else {PROTOCOL: ".".join(map(str, min(oldest, FIRST_BESIDE_THE_REFERENCE)))}

    def prepare(self) -> None:
        for kind in self.kinds:
            self._prepare(kind)

    def _prepare(self, kind: ClusterTarget) -> None:
        super()._prepare(kind)
        assert isinstance(kind, ByZooKeeper)
        kind.zookeeper = self.zookeeper

    def properties(self, member: Member) -> dict[str, str]:
        return self._kind(member).properties(member) | self._protocol

    def gives_up(self, node: int) -> bool:
        kind = self.kinds[node - 1]
        return isinstance(kind, ByZooKeeper) and kind.gives_up(node)

    def zookeeper_command(self) -> tuple[Sequence[Path], Sequence[str]]:
        kind = self.kinds[0]
        assert isinstance(kind, ByZooKeeper)
        return kind.zookeeper_command()
