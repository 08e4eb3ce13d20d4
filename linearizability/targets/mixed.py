"""One cluster of nodes of several kinds: releases of Apache Kafka, and the reference.

    mixed:kafka:4.3.1,reference,kafka:4.4.0        three nodes, each broker and controller
    mixed:kafka:4.3.1,broker=reference             the second is a broker only

Each node is laid out, formatted and served as its kind is; the metadata version is that of the oldest release, of which the
reference is one (4.3.1). Beside the reference releases begin with 3.9: it asks its peers in the versions of its own release,
and beside an older one in those of 3.9.2 (`tidegauge.peers.release`), but never what they serve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from linearizability.targets.cluster import ClusterTarget, Member, write_properties
from linearizability.targets.hosts import Host
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.target import WrongTarget

BROKER_ONLY = "broker="
FIRST_BESIDE_THE_REFERENCE = [3, 9]
FIRST_LIKE_THE_REFERENCE = [4, 3]
RELEASE_OF_THE_REFERENCE = "4.3.1"


class MixedCluster(ClusterTarget):
    """`mixed:KIND,KIND,...`; a kind is `reference` or `kafka:VERSION`, after `broker=` where it is no controller."""

    def __init__(
        self,
        spec: str,
        kinds: Sequence[ClusterTarget],
        controllers: Sequence[bool],
        *,
        folder: Path,
        config: Mapping[str, str] | None = None,
        hosts: Sequence[Host] | None = None,
    ) -> None:
        """`kinds` are clusters that are never opened, one a node; `controllers` says which nodes are controllers, too.

        Errors: WrongTarget where none is a controller.
        """
        super().__init__(spec, nodes=len(kinds), folder=folder, config=config, hosts=hosts)
        if not any(controllers):
            raise WrongTarget(f"{spec!r}: at least one node must be a controller")
        self.kinds = [*kinds]
        self._refuse_older()
        self._controllers = controllers

    def prepare(self) -> None:
        for kind in self.kinds:
            self._prepare(kind)
        releases = [kind for kind in self.kinds if isinstance(kind, KafkaCluster)]
        if releases:
            checkpoint = self._oldest(releases).quick.checkpoint
            for kind in releases:
                kind.quick = replace(kind.quick, checkpoint=checkpoint)

    def _oldest(self, releases: Sequence[KafkaCluster]) -> KafkaCluster:
        """The release whose first metadata all nodes know."""
        oldest = min(releases, key=_version)
        spec = f"kafka:{RELEASE_OF_THE_REFERENCE}"
        of_the_reference = KafkaCluster(spec, version=RELEASE_OF_THE_REFERENCE, nodes=1, folder=self.folder)
        if len(releases) == len(self.kinds) or _version(oldest) <= _version(of_the_reference):
            return oldest
        of_the_reference.prepare()
        return of_the_reference

    def _refuse_older(self) -> None:
        """Errors: WrongTarget where a release beside the reference does not serve what it is asked."""
        older = [
            each.spec
            for each in self.kinds
            if isinstance(each, KafkaCluster) and _version(each) < FIRST_BESIDE_THE_REFERENCE
        ]
        if older and any(isinstance(each, ReferenceCluster) for each in self.kinds):
            raise WrongTarget(
                f"{self.spec!r}: the reference asks its peers in the versions of 3.9 or of 4.3, which {older[0]} does not serve"
            )

    def _prepare(self, kind: ClusterTarget) -> None:
        kind.size, kind.cluster_id = self.size, self.cluster_id
        kind.prepare()

    def change_kind(self, node: int, kind: ClusterTarget, *, clean: bool) -> None:
        """Serve a node's folder, as it is, by another kind from now on; `clean` says how the one of before ends.

        Errors: TargetError; WrongTarget.
        """
        self._prepare(kind)
        (self.stop if clean else self.kill)(node)
        self.kinds[node - 1] = kind
        self._refuse_older()
        member = self.member(node)
        member.properties = self.all_properties(member)
        write_properties(member.properties_file, member.properties)
        member.process.command = [*member.host.prefix, *(str(part) for part in self.command(member))]
        member.process.environment = self.environment(member)
        self.restart(node)

    def properties(self, member: Member) -> dict[str, str]:
        given = self._kind(member).properties(member)
        if isinstance(self._kind(member), ReferenceCluster) and self._has_older_peers():
            given["tidegauge.peers.release"] = "3.9.2"
        given["controller.quorum.voters"] = ",".join(
            f"{each.node.id}@{each.node.host}:{each.controller_port}" for each in self.members if self._controls(each)
        )
        if not self._controls(member):
            given["process.roles"] = "broker"
            given["listeners"] = given["advertised.listeners"]
        return given

    def _has_older_peers(self) -> bool:
        """Whether a release does not serve all that the reference asks its peers by default."""
        return any(isinstance(each, KafkaCluster) and _version(each) < FIRST_LIKE_THE_REFERENCE for each in self.kinds)

    def format(self, member: Member) -> None:
        self._kind(member).format(member)

    def command(self, member: Member) -> list[str | Path]:
        return self._kind(member).command(member)

    def environment(self, member: Member) -> dict[str, str]:
        return self._kind(member).environment(member)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"kinds": [kind.spec for kind in self.kinds], "controllers": [*self._controllers]}

    def _kind(self, member: Member) -> ClusterTarget:
        kind = self.kinds[member.node.id - 1]
        kind.members = self.members
        return kind

    def _controls(self, member: Member) -> bool:
        return self._controllers[member.node.id - 1]


def _version(kind: KafkaCluster) -> list[int]:
    return [int(part) for part in kind.version.split(".")]
