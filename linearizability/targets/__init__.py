"""Targets: how to reach, start and hurt a broker.

    with open_target("kafka:4.3.1:3", folder=run_folder, config={"min.insync.replicas": "2"}) as target:
        target.bootstrap                      # host:port,host:port,host:port
        target.kill(2); target.restart(2)     # hooks; one that is missing raises HookMissing

| spec | what it is |
| --- | --- |
| `addr:HOST:PORT` | a broker that runs already, with all nodes of its cluster; no hooks, or `restart` by a command |
| `reference[:NODES]` | this project's broker |
| `reference-pypy[:NODES]` | the same, executed by PyPy: found on this machine, or fetched |
| `kafka:VERSION[:NODES]` | Apache Kafka from its Maven artifacts |
| `reference-zk[:NODES]`, `kafka-zk:VERSION[:NODES]` | the same, coordinated by a ZooKeeper: Kafka up to 3.9 |
| `mixed:KIND,KIND,...` | one cluster: `mixed:kafka:4.3.1,reference`; `controller=KIND` and `broker=KIND` have one role alone |
| `crabka[:NODES]`, `kfake[:NODES]`, `tansu`, `noida`, `rdkafka-mock[:NODES]` | other vendors' brokers: strangers/README.md |
| `exec:PATH [ARGUMENTS]` | anything else, by an adapter that answers JSON lines: see CONTRACT.md |
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linearizability.targets.addresses import AddressMap
from linearizability.targets.hosts import Host
from linearizability.targets.security import ClientSecurity
from linearizability.targets.target import HOOKS, HookMissing, Node, Target, TargetError, WrongTarget

if TYPE_CHECKING:
    from linearizability.targets.strangers.server import Server

__all__ = [
    "HOOKS",
    "Access",
    "AddressMap",
    "HookMissing",
    "Node",
    "Target",
    "TargetError",
    "WrongTarget",
    "open_target",
]

MAX_NODES = 9


@dataclass(frozen=True, slots=True)
class Access:
    """Addresses, restart command and security of a cluster that the suite did not start."""

    addresses: AddressMap = field(default_factory=AddressMap)
    """Advertised address -> reachable address."""
    restart_command: str = ""
    """A shell command that restarts a node of an `addr:` target."""
    security: ClientSecurity | None = None
    """The security of its listeners; None for PLAINTEXT."""


def open_target(
    spec: str,
    *,
    folder: Path,
    config: Mapping[str, str] | None = None,
    hosts: Sequence[Host] | None = None,
    nodes: int | None = None,
    access: Access = Access(),
    protocol: str = "PLAINTEXT",
) -> Target:
    """The target that `spec` names, not yet started: use it as a context manager.

    `folder` gets its logs and data; `config` are broker properties by Kafka's names; `hosts` are the places of its nodes (by
    default this machine's loopback); `nodes` is their number where `spec` has none; `access` is for a cluster that the suite
    did not start; `protocol` secures the listeners of one that it starts (`secured.py`). Errors: WrongTarget.
    """
    target = _named(spec, folder, config=config, hosts=hosts, nodes=nodes, restart_command=access.restart_command)
    target.addresses, security = access.addresses, access.security
    if security and security.protocol != "PLAINTEXT":
        if not spec.startswith(("addr:", "exec:")):
            raise WrongTarget(f"{spec!r} is started here, without security: addr: and exec: targets can be secured")
        target.security = security
    if protocol != "PLAINTEXT":
        from linearizability.targets.cluster import ClusterTarget

        if not isinstance(target, ClusterTarget):
            raise WrongTarget(f"{spec!r} is not secured here: reference, kafka:VERSION and mixed: clusters can be")
        target.secure(protocol)
    return target


def _named(
    spec: str,
    folder: Path,
    *,
    config: Mapping[str, str] | None,
    hosts: Sequence[Host] | None,
    nodes: int | None,
    restart_command: str,
) -> Target:
    kind, _, rest = spec.partition(":")
    match kind:
        case "addr":
            from linearizability.targets.address import Address

            return Address(spec, rest, folder=folder, config=config, restart_command=restart_command)
        case "reference":
            from linearizability.targets.reference import ReferenceCluster

            return ReferenceCluster(spec, nodes=_count(spec, rest, nodes), folder=folder, config=config, hosts=hosts)
        case "reference-pypy":
            from linearizability.targets.reference import PyPyReferenceCluster

            return PyPyReferenceCluster(
                spec, nodes=_count(spec, rest, nodes), folder=folder, config=config, hosts=hosts
            )
        case "reference-zk":
            from linearizability.targets.reference import ZooKeeperReferenceCluster

            count = _count(spec, rest, nodes)
            return ZooKeeperReferenceCluster(spec, nodes=count, folder=folder, config=config, hosts=hosts)
        case "kafka" | "kafka-zk":
            return _kafka(spec, rest, folder=folder, config=config, hosts=hosts, nodes=nodes)
        case "mixed":
            return _mixed(spec, rest, folder=folder, config=config, hosts=hosts)
        case "crabka":
            from linearizability.targets.strangers.crabka import CrabkaCluster

            return CrabkaCluster(spec, nodes=_count(spec, rest, nodes), folder=folder, config=config, hosts=hosts)
        case "kfake" | "tansu" | "noida" | "rdkafka-mock":
            return _stranger(kind)(spec, nodes=_count(spec, rest, nodes), folder=folder, config=config)
        case "exec":
            from linearizability.targets.adapter import Adapter

            command = shlex.split(rest)
            if not command:
                raise WrongTarget(f"{spec!r}: a path is needed, as exec:./adapter.py")
            return Adapter(spec, command, folder=folder, config=config, nodes=nodes)
        case _:
            raise WrongTarget(
                f"{spec!r} is no target: addr:HOST:PORT, reference[:NODES], kafka:VERSION[:NODES], mixed:KIND,..., "
                "reference-pypy[:NODES], reference-zk[:NODES], kafka-zk:VERSION[:NODES], crabka[:NODES], kfake[:NODES], "
                "tansu, noida, rdkafka-mock[:NODES] or exec:PATH"
            )


def _kafka(spec: str, rest: str, *, nodes: int | None, **more: Any) -> Target:
    from linearizability.targets.kafka import KafkaCluster
    from linearizability.targets.zookeeper_kafka import ZooKeeperKafkaCluster, needs_zookeeper

    version, _, count = rest.partition(":")
    if not re.fullmatch(r"\d+(\.\d+){2,3}", version):
        raise WrongTarget(f"{spec!r}: a version is needed, as kafka:4.3.1 or kafka:4.3.1:3")
    by_zookeeper = needs_zookeeper(version) or spec.startswith("kafka-zk:")
    if by_zookeeper and version.startswith("4."):
        raise WrongTarget(f"{spec!r}: ZooKeeper coordinates releases up to 3.9")
    kind = ZooKeeperKafkaCluster if by_zookeeper else KafkaCluster
    return kind(spec, version=version, nodes=_count(spec, count, nodes), **more)


def _mixed(spec: str, rest: str, *, folder: Path, **more: Any) -> Target:
    from linearizability.targets.cluster import ClusterTarget
    from linearizability.targets.mixed import MixedCluster, Role, role_and_kind
    from linearizability.targets.mixed_zookeeper import MixedZooKeeperCluster
    from linearizability.targets.zookeeper import ByZooKeeper

    kinds: list[ClusterTarget] = []
    texts = rest.split(",")
    if not 1 < len(texts) <= MAX_NODES:
        raise WrongTarget(f"{spec!r}: 2 to {MAX_NODES} kinds are needed, as mixed:kafka:4.3.1,reference")
    roles, names = zip(*map(role_and_kind, texts), strict=True)
    for text, name in zip(texts, names, strict=True):
        kind = _named(name, folder, config=None, hosts=more["hosts"], nodes=None, restart_command="")
        if not isinstance(kind, ClusterTarget) or not kind.joins_kafka or kind.size != 1:
            raise WrongTarget(
                f"{spec!r}: {text!r} is no node of such a cluster: reference, kafka:VERSION, reference-zk or kafka-zk:VERSION"
            )
        kinds.append(kind)
    by_zookeeper = [kind for kind in kinds if isinstance(kind, ByZooKeeper)]
    if by_zookeeper:
        if len(by_zookeeper) < len(kinds) or {*roles} != {Role.BOTH}:
            raise WrongTarget(
                f"{spec!r}: ZooKeeper coordinates all nodes of a cluster or none: reference-zk, kafka-zk:VERSION"
            )
        return MixedZooKeeperCluster(spec, by_zookeeper, folder=folder, **more)
    return MixedCluster(spec, kinds, roles, folder=folder, **more)


def _stranger(kind: str) -> type[Server]:
    match kind:
        case "kfake":
            from linearizability.targets.strangers.kfake import Kfake as stranger
        case "tansu":
            from linearizability.targets.strangers.tansu import Tansu as stranger
        case "noida":
            from linearizability.targets.strangers.noida import Noida as stranger
        case _:
            from linearizability.targets.strangers.rdkafka_mock import RdkafkaMock as stranger
    return stranger


def _count(spec: str, text: str, otherwise: int | None) -> int:
    if not text:
        return otherwise or 1
    if not text.isdigit() or not 1 <= int(text) <= MAX_NODES:
        raise WrongTarget(f"{spec!r}: the number of nodes is 1 to {MAX_NODES}")
    return int(text)
