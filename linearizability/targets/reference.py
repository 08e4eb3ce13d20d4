"""The reference broker, each node a process of `tidegauge serve`."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.pypy import ENVIRONMENT as OF_PYPY
from linearizability.targets.pypy import pypy
from linearizability.targets.target import TargetError
from linearizability.targets.zookeeper import ByZooKeeper, zookeeper_program

FORMAT_TIMEOUT_S = 60


def serve_command(member: Member, interpreter: str | Path = sys.executable) -> list[str | Path]:
    """The command that starts a node of the reference, also in a mixed cluster."""
    return [interpreter, "-m", "tidegauge", "serve", member.properties_file]


class ReferenceCluster(ClusterTarget):
    """`reference[:NODES]`."""

    interpreter: str | Path = sys.executable
    """The interpreter of the nodes."""

    @property
    def several(self) -> bool:
        """True for one node, which is light. Several clusters, or Java brokers, at once would delay each other."""
        return self.size == 1 and self.links is None

    def properties(self, member: Member) -> dict[str, str]:
        return self.kraft_properties(member)

    def format(self, member: Member) -> None:
        command = [*TIDEGAUGE, "format", str(member.properties_file), "--cluster-id", self.cluster_id]
        done = subprocess.run(
            command,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise TargetError(f"tidegauge format failed: {(done.stderr or done.stdout).strip()}")

    def command(self, member: Member) -> list[str | Path]:
        return serve_command(member, self.interpreter)

    def environment(self, member: Member) -> dict[str, str]:
        of_pypy = OF_PYPY if self.interpreter != sys.executable else {}
        return super().environment(member) | ENVIRONMENT | of_pypy


class PyPyReferenceCluster(ReferenceCluster):
    """`reference-pypy[:NODES]`: the same brokers, run by PyPy, which is found or fetched."""

    def prepare(self) -> None:
        self.interpreter = pypy()


class ZooKeeperReferenceCluster(ByZooKeeper, ReferenceCluster):
    """`reference-zk[:NODES]`: the same brokers, coordinated by a ZooKeeper as Kafka's were until 3.9."""

    def prepare(self) -> None:
        if not self.zookeeper.given:
            zookeeper_program()

    def properties(self, member: Member) -> dict[str, str]:
        address = f"PLAINTEXT://{member.host.address}:{member.node.port}"
        return {"listeners": address, "advertised.listeners": address, **self.zookeeper_properties(member)}

    def zookeeper_command(self) -> tuple[Sequence[Path], Sequence[str]]:
        return zookeeper_program()


ENVIRONMENT = {"PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""The broker uses no Pydantic plugins, and the search for them would read the metadata of every installed distribution."""
TIDEGAUGE = (sys.executable, "-m", "tidegauge")
"""The command line of this environment, independent of PATH."""
