"""`tidegauge cluster`: nodes of the reference, and of Apache Kafka or a ZooKeeper beside them, as one cluster to look at."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from linearizability.targets.cluster import ClusterTarget, Member

ENGINE_ERROR = 3
LOOPBACK = "127.0.0.1"
LOOK_EVERY_S = 1.0
ANSWER_WITHIN_S = 2.0
STOP_WITHIN_S = 40.0
MAX_REASON = 300
METRICS = "tidegauge.metrics.listener"

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


class Coordination(Enum):
    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"


def _spec(nodes: int, kinds: Sequence[str], coordination: Coordination) -> str:
    """The target of the command's options. Errors: WrongTarget for what cannot be beside the reference."""
    from linearizability.targets import WrongTarget

    if coordination is Coordination.ZOOKEEPER:
        return f"reference-zk:{nodes}"
    if not kinds:
        return f"reference:{nodes}"
    if len(kinds) >= nodes:
        raise WrongTarget(f"--with: {len(kinds)} of {nodes} nodes leave none to the reference")
    if not all(kind.startswith("kafka:") for kind in kinds):
        raise WrongTarget(f"--with {' '.join(kinds)}: kafka:VERSION is needed, as kafka:4.3.1")
    return f"mixed:{','.join(['reference'] * (nodes - len(kinds)) + [*kinds])}"


def _target(spec: str, folder: Path, port: int, zookeeper: str, settings: Mapping[str, str]) -> ClusterTarget:
    """The cluster of a folder, not yet started. Errors: TargetError."""
    from linearizability.targets import open_target
    from linearizability.targets.cluster import ClusterTarget
    from linearizability.targets.zookeeper import ByZooKeeper

    target = open_target(spec, folder=folder)
    assert isinstance(target, ClusterTarget)
    _continue(target, isinstance(target, ByZooKeeper))
    target.first_port, target.keep_data = port, True
    target.given = {**_settings(target), **settings}
    target.of_each_node = _metrics
    if zookeeper and isinstance(target, ByZooKeeper):
        target.zookeeper.given = zookeeper
    return target


def _kinds(target: ClusterTarget) -> Sequence[ClusterTarget]:
    """The kind of each node."""
    from linearizability.targets.mixed import MixedCluster

    return target.kinds if isinstance(target, MixedCluster) else [target] * target.size


def _execute_by_pypy(target: ClusterTarget) -> None:
    """Let PyPy execute the reference's nodes. Errors: TargetError where there is no PyPy."""
    from linearizability.targets.pypy import pypy
    from linearizability.targets.reference import ReferenceCluster

    for kind in _kinds(target):
        if isinstance(kind, ReferenceCluster):
            kind.interpreter = pypy()


def _continue(target: ClusterTarget, has_zookeeper: bool) -> None:
    """Go on with the cluster of the folder, if there is one. Errors: TargetError where it is coordinated in the other way."""
    from linearizability.targets import TargetError
    from linearizability.targets.cluster import META_PROPERTIES

    for folder in target.folder.glob("node-*"):
        file = folder / "server.properties"
        had_zookeeper = file.exists() and "\nzookeeper.connect=" in "\n" + file.read_text()
        if file.exists() and had_zookeeper != has_zookeeper:
            former = "a ZooKeeper" if had_zookeeper else "its own quorum"
            raise TargetError(f"{folder} is of a cluster that {former} coordinates")
        meta = folder / "data" / META_PROPERTIES
        for line in meta.read_text().splitlines() if meta.exists() else ():
            if line.startswith("cluster.id="):
                target.cluster_id = line.partition("=")[2]


def _settings(target: ClusterTarget) -> dict[str, str]:
    """The properties of such a cluster besides those of every target."""
    from linearizability.targets.zookeeper import ByZooKeeper

    factor = min(target.size, 3)
    settings = {
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(max(1, factor - 1)),
        "replica.lag.time.max.ms": "5000",
        "group.initial.rebalance.delay.ms": "3000",
    }
    if isinstance(target, ByZooKeeper):
        return settings
    return settings | {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def _metrics(member: Member) -> dict[str, str]:
    """The first node's metrics are at the port that is set, those of each further node at the next: all share one host."""
    host, _, port = member.properties.get(METRICS, "").rpartition(":")
    return {METRICS: f"{host}:{int(port) + member.node.id - 1}"} if port.isdecimal() and int(port) else {}


def _fail(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(ENGINE_ERROR)


@app.command(
    epilog="Examples:  tidegauge cluster --nodes 3  |  tidegauge cluster --with kafka:4.3.1 --folder mixed  |  "
    "tidegauge cluster --coordination zookeeper --folder historical  |  "
    "tidegauge cluster --nodes 5 --folder five --set log.retention.ms=60000  |  tidegauge cluster --pypy",
)
def cluster(
    nodes: Annotated[int, typer.Option(help="How many nodes, each broker and controller.")] = 3,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="kafka:VERSION", help="The last node is of this release of Apache Kafka; may repeat."
        ),
    ] = None,
    coordination: Annotated[
        Coordination, typer.Option(help="What coordinates the nodes: their own quorum, or a ZooKeeper.")
    ] = Coordination.KRAFT,
    zookeeper: Annotated[
        str,
        typer.Option(metavar="HOST:PORT[,...][/CHROOT]", help="This ZooKeeper; without it, one of the cluster's own."),
    ] = "",
    folder: Annotated[
        Path, typer.Option(help="The cluster's folder; an existing cluster continues where it ended.")
    ] = Path("cluster"),
    port: Annotated[int, typer.Option(help="Port of node 1; the others follow, controllers 100 above.")] = 9092,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long; without it, at Ctrl-C.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of all nodes; may repeat. Each takes a tidegauge.metrics.listener of its own: the next port.",
        ),
    ] = None,
    with_pypy: Annotated[
        bool, typer.Option("--pypy", help="PyPy executes the reference's nodes: found on this machine, or fetched.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a change, and one at the end.")] = False,
) -> None:
    """Start a cluster on this machine, show who leads what whenever that changes, and stop it cleanly.

    Nodes are the reference's, the last ones those of --with. A node's server.properties, log and data are in its folder
    FOLDER/node-N. SIGTERM, SIGHUP and Ctrl-C stop it; a second one kills its
    nodes. They end as well when this process is killed.
    """
    from linearizability.targets.target import TargetError

    settings: dict[str, str] = {}
    for pair in set_ or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise _fail(f"--set {pair}: NAME=VALUE is needed")
        settings[name.strip()] = value.strip()
    by_zookeeper = coordination is Coordination.ZOOKEEPER
    if with_ and by_zookeeper:
        raise _fail(
            "--with: beside a ZooKeeper all nodes are the reference's (a target mixed:kafka-zk:3.9.2,reference-zk has both)"
        )
    if zookeeper and not by_zookeeper:
        raise _fail("--zookeeper needs --coordination zookeeper")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        spec = _spec(nodes, with_ or [], coordination)
        target = _target(spec, folder.resolve(), port, zookeeper, settings)
        if with_pypy:
            _execute_by_pypy(target)
        try:
            try:
                _open(target)
                _watch(target, seconds, as_json)
            except KeyboardInterrupt:
                typer.echo("stopping", err=True)
            _stop(target)
        finally:
            target.close()
    except TargetError as error:
        raise _fail(str(error)) from None
    if as_json:
        typer.echo(json.dumps({"nodes": nodes, "folder": str(folder), "stopped": True}))


def _open(target: ClusterTarget) -> None:
    """Start the nodes and wait until each knows every other. Errors: TargetError in one line, where a node ended why."""
    from linearizability.targets.target import TargetError

    _expect_unserved(target)
    try:
        target.open()
    except TargetError as error:
        for member in target.members:
            process, code = member.process, member.process.exit_code()
            if code is not None and code > 0:
                reason = process.tail(1)[:MAX_REASON]
                raise TargetError(
                    f"node {member.node.id} ended with exit code {code}: {reason} ({process.log})"
                ) from error
        raise
    for node in target.nodes:
        typer.echo(f"node {node.id} at {node.address}", err=True)


def _expect_unserved(target: ClusterTarget) -> None:
    """Errors: TargetError where a port of a node is served: that server would be taken for the node."""
    from linearizability.targets.target import TargetError

    first = target.first_port or 0
    for port in range(first, first + target.size):
        with suppress(OSError, OverflowError), socket.create_connection((LOOPBACK, port), ANSWER_WITHIN_S):
            raise TargetError(f"{LOOPBACK}:{port} is served by another process: --port gives node 1 another one")


def _stop(target: ClusterTarget) -> None:
    """Stop all nodes cleanly; one that does not stop in time is killed when the target is closed.

    Apache Kafka's stop first: they wait for minutes for a controller that lets them go.
    """
    from linearizability.targets.kafka import KafkaCluster

    until = time.monotonic() + STOP_WITHIN_S
    for is_kafka in (True, False):
        stopping = [
            member.process
            for member, kind in zip(target.members, _kinds(target), strict=True)
            if isinstance(kind, KafkaCluster) == is_kafka
        ]
        for process in stopping:
            process.terminate()
        for process in stopping:
            process.wait(max(0.1, until - time.monotonic()))


def _watch(target: ClusterTarget, seconds: float | None, as_json: bool) -> None:
    shown: str | None = None
    until = None if seconds is None else time.monotonic() + seconds
    while until is None or time.monotonic() < until:
        ended = [node.id for node in target.nodes if not target.running(node.id)]
        answers = (_describe(member) for member in target.members if member.node.id not in ended)
        answer = next((each for each in answers if each is not None), None)
        reported = _reported(answer, ended, as_json)
        if reported != shown:
            shown = reported
            typer.echo(reported)
        time.sleep(LOOK_EVERY_S)


def _describe(member: Member) -> Any:
    """The metadata as a node reports them; None where it does not answer."""
    from linearizability.targets.wire import Wire, WireError
    from reference.protocol.messages.metadata import MetadataRequest

    try:
        with Wire.connect(member.node.host, member.node.port, timeout_s=ANSWER_WITHIN_S) as wire:
            return wire.call(MetadataRequest(topics=None))
    except WireError:
        return None


def _reported(answer: Any, ended: Collection[int], as_json: bool) -> str:
    """Which brokers are alive and which partitions they lead, as a table or as one JSON object."""
    alive = sorted(broker.node_id for broker in answer.brokers) if answer is not None else []
    rows = [
        (topic.name or "", each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes)
        for topic in sorted(answer.topics if answer is not None else (), key=lambda topic: topic.name or "")
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
    if as_json:
        names = ("topic", "partition", "leader", "replicas", "isr")
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        return json.dumps({"alive": alive, "ended": ended, "partitions": partitions})
    lines = [f"alive: {', '.join(map(str, alive)) or 'no node answers'}" + (f"; ended: {ended}" if ended else "")]
    lines += [
        f"  {topic}-{index}: leader {leader}, ISR {isr} of {replicas}" for topic, index, leader, replicas, isr in rows
    ]
    return "\n".join(lines)
