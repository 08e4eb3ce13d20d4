"""`tidegauge cluster`: nodes of the reference, and of Apache Kafka or a ZooKeeper beside them, as one cluster to look at."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from linearizability.targets.kafka import KafkaCluster
    from reference.protocol.messages.metadata import MetadataResponse
    from reference.runtime.cluster import ClusterProcesses

ENGINE_ERROR = 3
LOOK_EVERY_S = 1.0

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


class Coordination(Enum):
    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"


class KafkaGuest:
    """A node of Apache Kafka in a cluster of the reference."""

    def __init__(self, kind: KafkaCluster) -> None:
        """`kind` is prepared, and never opened."""
        self._kind = kind
        self.settings: Mapping[str, str] = kind.small_settings()

    def format(self, data: Path) -> None:
        from linearizability.targets.kafka_start import CHECKPOINT

        if self._kind.quick.checkpoint is not None and not (data / CHECKPOINT).exists():
            shutil.copyfile(self._kind.quick.checkpoint, data / CHECKPOINT)

    def start(self, properties_file: Path, log: Path) -> subprocess.Popen[bytes]:
        from linearizability.targets import leash

        command = [str(part) for part in self._kind.serve(properties_file)]
        with log.open("ab") as output:
            return leash.start(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _guests(nodes: int, kinds: Sequence[str], folder: Path) -> dict[int, KafkaGuest]:
    """The last nodes, by their ids. Errors: TargetError for what is no release, or cannot be beside the reference."""
    from linearizability.targets import WrongTarget, open_target
    from linearizability.targets.kafka import KafkaCluster
    from linearizability.targets.mixed import MixedCluster

    if not kinds:
        return {}
    if len(kinds) >= nodes:
        raise WrongTarget(f"--with: {len(kinds)} of {nodes} nodes leave none to the reference")
    first = nodes - len(kinds)
    mixed = open_target(f"mixed:{','.join(['reference'] * first + [*kinds])}", folder=folder)
    assert isinstance(mixed, MixedCluster)
    mixed.prepare()
    found = [kind for kind in mixed.kinds[first:] if isinstance(kind, KafkaCluster)]
    if len(found) < len(kinds):
        raise WrongTarget(f"--with {' '.join(kinds)}: kafka:VERSION is needed, as kafka:4.3.1")
    return {first + number: KafkaGuest(kind) for number, kind in enumerate(found, start=1)}


@contextmanager
def _zookeeper(folder: Path, hosts: str) -> Iterator[str]:
    """A ZooKeeper's HOST:PORT: those given, or of a server that runs as long as this, with its data in `folder`.

    Errors: TargetError.
    """
    from linearizability.targets.hosts import Host
    from linearizability.targets.target import TargetError
    from linearizability.targets.zookeeper import SESSION_TIMEOUT_MS, ZooKeeper, zookeeper_program

    if hosts:
        yield hosts
        return
    server = ZooKeeper("ZooKeeper", Host(), SESSION_TIMEOUT_MS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        server.lay_out(folder, *zookeeper_program())
        server.start()
        yield server.address
    except OSError as error:
        raise TargetError(f"{folder}: {error}") from error
    finally:
        server.kill()


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

    Nodes are the reference's, the last ones those of --with. SIGTERM, SIGHUP and Ctrl-C stop it; a second one kills its
    nodes. They end as well when this process is killed.
    """
    from linearizability.targets.pypy import ENVIRONMENT, pypy
    from linearizability.targets.target import TargetError
    from reference.runtime.cluster import ClusterProcesses, lay_out
    from reference.runtime.configuration import ConfigurationError

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
    home = folder.resolve()
    try:
        guests = _guests(nodes, with_ or [], home)
        interpreter, environment = (str(pypy()), ENVIRONMENT) if with_pypy else (sys.executable, {})
        with ExitStack() as stack:
            connect = stack.enter_context(_zookeeper(home, zookeeper)) if by_zookeeper else ""
            members = lay_out(home, nodes, port, settings, guests, connect)
            running = stack.enter_context(ClusterProcesses(members, interpreter, environment))
            try:
                running.await_ready(lambda text: typer.echo(text, err=True))
                _watch(running, seconds, as_json)
            except KeyboardInterrupt:
                typer.echo("stopping", err=True)
    except (ConfigurationError, TargetError) as error:
        raise _fail(str(error)) from None
    if as_json:
        typer.echo(json.dumps({"nodes": nodes, "folder": str(folder), "stopped": True}))


def _watch(running: ClusterProcesses, seconds: float | None, as_json: bool) -> None:
    from reference.runtime.cluster import describe

    shown: str | None = None
    until = None if seconds is None else time.monotonic() + seconds
    while until is None or time.monotonic() < until:
        ended = [member.id for member, _ in running.ended()]
        answers = (describe(member) for member in running.members if member.id not in ended)
        answer = next((each for each in answers if each is not None), None)
        reported = _reported(answer, ended, as_json)
        if reported != shown:
            shown = reported
            typer.echo(reported)
        time.sleep(LOOK_EVERY_S)


def _reported(answer: MetadataResponse | None, ended: list[int], as_json: bool) -> str:
    """Who is alive and who leads what, as a table or as one JSON object."""
    from reference.runtime.cluster import leaders

    alive = sorted(broker.node_id for broker in answer.brokers) if answer is not None else []
    rows = leaders(answer) if answer is not None else []
    if as_json:
        names = ("topic", "partition", "leader", "replicas", "isr")
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        return json.dumps({"alive": alive, "ended": ended, "partitions": partitions})
    lines = [f"alive: {', '.join(map(str, alive)) or 'no node answers'}" + (f"; ended: {ended}" if ended else "")]
    lines += [
        f"  {topic}-{index}: leader {leader}, ISR {isr} of {replicas}" for topic, index, leader, replicas, isr in rows
    ]
    return "\n".join(lines)
