"""`tidegauge format` and `tidegauge serve`."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

ENGINE_ERROR = 3
NODE_BROKEN = 1

OWNER_ALONE = 0o077
"""The mask of what others may not do with the files that a node makes: logs hold clients' data, metadata their credentials."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Kafka's server.properties.")]


@contextmanager
def _for_owner_alone() -> Generator[None]:
    """Make files that no other user may read."""
    before = os.umask(OWNER_ALONE)
    try:
        yield
    finally:
        os.umask(before)


def _fail(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(ENGINE_ERROR)


@app.command(
    "format",
    epilog="Examples:  tidegauge format server.properties  |  tidegauge format server.properties --cluster-id $ID  |  "
    "tidegauge format server.properties --standalone",
)
def format_(
    config: ConfigPath,
    cluster_id: Annotated[
        str | None, typer.Option(help="The cluster's id; a new one is made where none is given.")
    ] = None,
    ignore_formatted: Annotated[bool, typer.Option(help="A folder of the same cluster is fine as it is.")] = False,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="The node is the only voter of a quorum that can change (KIP-853).")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            metavar="ID@HOST:PORT:DIRECTORY,...",
            help="The first voters of a quorum that can change, this node among them.",
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool,
        typer.Option(
            "--no-initial-controllers", help="The node joins a quorum that can change; the others know its voters."
        ),
    ] = False,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CREDENTIAL",
            help="A user's first SCRAM credential: SCRAM-SHA-256=[name=alice,password=secret]; may repeat. Give the same to "
            "each controller.",
        ),
    ] = None,
) -> None:
    """Prepare the log directories and give the cluster its id; prints the id.

    Without an option for voters they are those of controller.quorum.voters, and do not change.
    """
    from reference.runtime import formatting
    from reference.runtime.configuration import ConfigurationError, load_configuration
    from reference.runtime.folders import format_folders, new_cluster_id, validate_cluster_id
    from reference.security.errors import WrongSecurity

    try:
        configuration = load_configuration(config)
        wanted = validate_cluster_id(cluster_id) if cluster_id else new_cluster_id()
        if standalone + no_initial_controllers + bool(initial_controllers) > 1:
            raise ConfigurationError(
                "--standalone, --initial-controllers and --no-initial-controllers exclude each other"
            )
        first = None
        if standalone:
            first = formatting.standalone(configuration)
        elif initial_controllers:
            first = formatting.initial_controllers(configuration, initial_controllers)
        elif no_initial_controllers:
            first = formatting.no_initial_controllers(configuration)
        credentials: list[UserScramCredentialRecord] = []
        if add_scram:
            from reference.runtime.scram_argument import read_credential

            credentials = [read_credential(text) for text in add_scram]
        with _for_owner_alone():
            format_folders(
                configuration, wanted, ignore_formatted=ignore_formatted, first=first, credentials=credentials
            )
    except (ConfigurationError, WrongSecurity) as error:
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
        with _for_owner_alone():
            run_broker(check_configuration(properties, str(config)))
    except ConfigurationError as error:
        raise _fail(str(error)) from None
    except NodeBroken as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(NODE_BROKEN) from None
