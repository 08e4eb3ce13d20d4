"""One cluster of nodes of several kinds: releases of Apache Kafka, and the reference.

    mixed:kafka:4.3.1,reference,kafka:4.4.0        three nodes, each broker and controller
    mixed:kafka:4.3.1,broker=reference             the second is a broker only
    mixed:controller=reference,kafka:4.3.1         the first is a controller only

Each node is prepared, formatted and served as its kind is. The metadata version is that of the oldest release, where the
reference counts as 4.3.1. Releases beside the reference begin with 3.9: it sends requests to its peers in the versions of its
own release, or beside an older one in those of 3.9.2 (`tidegauge.peers.release`), and does not negotiate them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from linearizability.targets.cluster import ClusterTarget, Member, write_properties
from linearizability.targets.hosts import Host
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.target import Node, WrongTarget

FIRST_BESIDE_THE_REFERENCE = [3, 9]
FIRST_LIKE_THE_REFERENCE = [4, 3]
RELEASE_OF_THE_REFERENCE = "4.3.1"


class Role(Enum):
    """A node's role, by the value of process.roles."""

    BOTH = "broker,controller"
    BROKER = "broker"
    CONTROLLER = "controller"


def role_and_kind(text: str) -> tuple[Role, str]:
    """Split `broker=KIND`, `controller=KIND` or `KIND` into the role and the kind."""
    role, equals, kind = text.partition("=")
    return (Role(role), kind) if equals and role in ("broker", "controller") else (Role.BOTH, text)


class MixedCluster(ClusterTarget):
    """`mixed:KIND,KIND,...`; a kind is `reference` or `kafka:VERSION`, after `broker=` or `controller=` for a node of one
    role."""

    def __init__(
        self,
        spec: str,
        kinds: Sequence[ClusterTarget],
        roles: Sequence[Role],
        *,
        folder: Path,
        config: Mapping[str, str] | None = None,
        hosts: Sequence[Host] | None = None,
    ) -> None:
        """`kinds` has one cluster for each node, which is never opened. Errors: WrongTarget where no node has one of the
        roles."""
        super().__init__(spec, nodes=len(kinds), folder=folder, config=config, hosts=hosts)
        for one, other in ((Role.BROKER, Role.CONTROLLER), (Role.CONTROLLER, Role.BROKER)):
            if all(role is one for role in roles):
                raise WrongTarget(f"{spec!r}: at least one node must be a {other.value}")
        self.kinds = [*kinds]
        self._refuse_older()
        self._roles = roles

    def prepare(self) -> None:
        for kind in self.kinds:
            self._prepare(kind)
        releases = [kind for kind in self.kinds if isinstance(kind, KafkaCluster)]
        if releases:
            checkpoint = self._oldest(releases).quick.checkpoint
            for kind in releases:
                kind.quick = replace(kind.quick, checkpoint=checkpoint)

    def _oldest(self, releases: Sequence[KafkaCluster]) -> KafkaCluster:
        """The oldest release, whose bootstrap metadata all nodes support."""
        oldest = min(releases, key=_version)
        spec = f"kafka:{RELEASE_OF_THE_REFERENCE}"
        of_the_reference = KafkaCluster(spec, version=RELEASE_OF_THE_REFERENCE, nodes=1, folder=self.folder)
        if len(releases) == len(self.kinds) or _version(oldest) <= _version(of_the_reference):
            return oldest
        of_the_reference.prepare()
        return of_the_reference

    def _refuse_older(self) -> None:
        """Errors: WrongTarget where a release beside the reference does not serve the reference's requests."""
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
        """Serve a node's unchanged folder by another kind from now on. `clean` stops the present one cleanly; else it is
        killed.

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
        role = self._roles[member.node.id - 1]
        given["process.roles"] = role.value
        if role is Role.BROKER:
            given["listeners"] = given["advertised.listeners"]
        if role is Role.CONTROLLER:
            given["listeners"] = given["listeners"].replace(given.pop("advertised.listeners"), "").strip(",")
        return given

    def _has_older_peers(self) -> bool:
        """Whether a release does not serve all requests that the reference sends its peers by default."""
        return any(isinstance(each, KafkaCluster) and _version(each) < FIRST_LIKE_THE_REFERENCE for each in self.kinds)

    def is_broker(self, node: int) -> bool:
        return self._roles[node - 1] is not Role.CONTROLLER

    @property
    def controllers(self) -> Sequence[Node]:
        return [member.controller for member in self.members if self._controls(member)]

    def format(self, member: Member) -> None:
        self._kind(member).format(member)

    def command(self, member: Member) -> list[str | Path]:
        return self._kind(member).command(member)

    def environment(self, member: Member) -> dict[str, str]:
        return self._kind(member).environment(member)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "kinds": [kind.spec for kind in self.kinds],
            "roles": [role.value for role in self._roles],
        }

    def _kind(self, member: Member) -> ClusterTarget:
        kind = self.kinds[member.node.id - 1]
        kind.members = self.members
        return kind

    def _controls(self, member: Member) -> bool:
        return self._roles[member.node.id - 1] is not Role.BROKER


def _version(kind: KafkaCluster) -> list[int]:
    return [int(part) for part in kind.version.split(".")]
