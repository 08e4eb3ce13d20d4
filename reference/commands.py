"""`tidegauge format`, `tidegauge serve` and `tidegauge cluster`."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from reference.protocol.messages.metadata import MetadataResponse
    from reference.runtime.cluster import Cluster

ENGINE_ERROR = 3
NODE_BROKEN = 1
LOOK_EVERY_S = 1.0

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Kafka's server.properties.")]


def _fail(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(ENGINE_ERROR)


@app.command(
    "format",
    epilog="Examples:  tidegauge format server.properties  |  tidegauge format server.properties --cluster-id $ID",
)
def format_(
    config: ConfigPath,
    cluster_id: Annotated[
        str | None, typer.Option(help="The cluster's id; a new one is made where none is given.")
    ] = None,
    ignore_formatted: Annotated[bool, typer.Option(help="A folder of the same cluster is fine as it is.")] = False,
) -> None:
    """Prepare the log directories and give the cluster its id; prints the id."""
    from reference.runtime.configuration import ConfigurationError, load_configuration
    from reference.runtime.folders import format_folders, new_cluster_id, validate_cluster_id

    try:
        configuration = load_configuration(config)
        wanted = validate_cluster_id(cluster_id) if cluster_id else new_cluster_id()
        format_folders(configuration, wanted, ignore_formatted=ignore_formatted)
    except ConfigurationError as error:
        raise _fail(str(error)) from None
    typer.echo(wanted)


@app.command(
    epilog="Examples:  tidegauge serve server.properties  |  tidegauge serve server.properties --set log.dirs=data",
)
def serve(
    config: ConfigPath,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Overrides one line of the file; may repeat."),
    ] = None,
    stop_with_stdin: Annotated[
        bool,
        typer.Option(help="Stop when standard input, a pipe, is closed: when the process that holds it has ended."),
    ] = False,
) -> None:
    """Run one broker until SIGTERM or Ctrl-C. A wrong configuration is named in one line, and the exit code is 3.

    The exit code is 1 when the disk left the metadata log in a state that only a new start can find out.
    """
    from reference.runtime.configuration import (
        ConfigurationError,
        check_configuration,
        parse_properties,
    )
    from reference.runtime.process import run_broker
    from reference.runtime.server import NodeBroken

    try:
        try:
            properties = parse_properties(config.read_text(encoding="utf-8"), str(config))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{config}: {getattr(error, 'strerror', None) or error}") from error
        for pair in set_ or ():
            name, equals, value = pair.partition("=")
            if not equals:
                raise ConfigurationError(f"--set {pair}: NAME=VALUE is needed")
            properties[name.strip()] = value.strip()
        run_broker(check_configuration(properties, str(config)), stop_with_stdin=stop_with_stdin)
    except ConfigurationError as error:
        raise _fail(str(error)) from None
    except NodeBroken as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(NODE_BROKEN) from None


@app.command(
    epilog="Examples:  tidegauge cluster --nodes 3  |  tidegauge cluster --nodes 5 --folder five --set log.retention.ms=60000",
)
def cluster(
    nodes: Annotated[int, typer.Option(help="How many nodes, each broker and controller.")] = 3,
    folder: Annotated[
        Path, typer.Option(help="The cluster's folder; an existing cluster continues where it ended.")
    ] = Path("cluster"),
    port: Annotated[int, typer.Option(help="Port of node 1; the others follow, controllers 100 above.")] = 9092,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long; without it, at Ctrl-C.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of all nodes; may repeat.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a change, and one at the end.")] = False,
) -> None:
    """Start a cluster on this machine, show who leads what whenever that changes, and stop it cleanly.

    SIGTERM, SIGHUP and Ctrl-C stop it; a second one kills its nodes. They stop as well when this process is killed.
    """
    from reference.runtime.cluster import Cluster, lay_out
    from reference.runtime.configuration import ConfigurationError

    settings: dict[str, str] = {}
    for pair in set_ or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise _fail(f"--set {pair}: NAME=VALUE is needed")
        settings[name.strip()] = value.strip()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with Cluster(lay_out(folder.resolve(), nodes, port, settings)) as running:
            try:
                running.await_ready(lambda text: typer.echo(text, err=True))
                _watch(running, seconds, as_json)
            except KeyboardInterrupt:
                typer.echo("stopping", err=True)
    except ConfigurationError as error:
        raise _fail(str(error)) from None
    if as_json:
        typer.echo(json.dumps({"nodes": nodes, "folder": str(folder), "stopped": True}))


def _watch(running: Cluster, seconds: float | None, as_json: bool) -> None:
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
