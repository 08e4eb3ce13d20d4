"""Apache Kafka with ZooKeeper, from before KRaft."""

from collections.abc import Sequence
from pathlib import Path

from linearizability.targets.cluster import Member
from linearizability.targets.kafka import SMALL_BROKER, KafkaCluster
from linearizability.targets.zookeeper import ByZooKeeper

FIRST_WITHOUT = (3, 3)
"""The first release that is started in KRaft mode: the first whose KRaft is ready for production (KIP-833)."""
FIRST_WITH_LISTENERS = (0, 9)
"""The first release with `listeners`; before, a broker has a host name and a port."""
FIRST_WITH_CREATION = (0, 10, 1)
"""The first release in which a client can create a topic (KIP-4)."""


def version_of(release: str, numbers: int = 2) -> tuple[int, ...]:
    """The first `numbers` numbers of a release."""
    return tuple(int(part) for part in release.split(".")[:numbers])


def needs_zookeeper(version: str) -> bool:
    """Whether a release is started with a ZooKeeper."""
    return version_of(version) < FIRST_WITHOUT


class ZooKeeperKafkaCluster(ByZooKeeper, KafkaCluster):
    """`kafka:VERSION[:NODES]` of an old version, `kafka-zk:VERSION[:NODES]` of any up to 3.9."""

    def properties(self, member: Member) -> dict[str, str]:
        host, port = member.host.address, member.node.port
        address = f"PLAINTEXT://{host}:{port}"
        place: dict[str, str] = {"listeners": address, "advertised.listeners": address}
        if version_of(self.version) < FIRST_WITH_LISTENERS:
            place = {"host.name": host, "port": str(port)}
        return {**place, **self.zookeeper_properties(member), **SMALL_BROKER}

    def zookeeper_command(self) -> tuple[Sequence[Path], Sequence[str]]:
        return self.jars, self.logging()

    def _await_acquaintance(self) -> None:
        """Wait until the brokers report each other; not before 0.9, where they do so only once there is a topic."""
        if version_of(self.version) >= FIRST_WITH_LISTENERS:
            super()._await_acquaintance()

    def gives_up(self, node: int) -> bool:
        return True
