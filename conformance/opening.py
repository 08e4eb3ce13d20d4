"""Open a target from the command line's options: its addresses and security, the wait for it, and its own network."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conformance.options import Backend
from linearizability.options import SecurityProtocol

if TYPE_CHECKING:
    from conformance.requirement import Entry


def opening_of(
    target: str,
    mapped: list[str] | None,
    restart_command: str,
    client_config: Path | None,
    protocol: str = SecurityProtocol.PLAINTEXT,
) -> Callable[..., Any]:
    """The function that opens a target, with the caller's address map, restart command and security. Errors:
    typer.BadParameter."""
    from linearizability.targets import Access, AddressMap, WrongTarget, open_target
    from linearizability.targets.security import ClientSecurity, SecurityError

    if restart_command and not target.startswith("addr:"):
        raise typer.BadParameter("the suite starts this target itself", param_hint="--restart-command")
    try:
        addresses = AddressMap.parse(mapped or ())
    except WrongTarget as error:
        raise typer.BadParameter(str(error), param_hint="--map") from None
    try:
        security = ClientSecurity.read(client_config) if client_config else None
    except SecurityError as error:
        raise typer.BadParameter(str(error), param_hint="--client-config") from None
    if security and not target.startswith(("addr:", "exec:")):
        raise typer.BadParameter("the suite starts this target itself, without security", param_hint="--client-config")
    if protocol != SecurityProtocol.PLAINTEXT:
        try:
            open_target(target, folder=Path(), protocol=protocol)
        except WrongTarget as error:
            raise typer.BadParameter(str(error), param_hint="--security") from None
    return partial(open_target, access=Access(addresses, restart_command, security), protocol=protocol)


def await_target(target: str, wait_s: float) -> None:
    """Wait until an `addr:` target accepts connections. Errors: typer.BadParameter."""
    from linearizability.targets.address import await_connection
    from linearizability.targets.errors import WrongTarget

    if not target.startswith("addr:"):
        raise typer.BadParameter("the suite waits for the targets that it starts by itself", param_hint="--wait")
    try:
        await_connection(target, wait_s)
    except WrongTarget as error:
        raise typer.BadParameter(str(error), param_hint="--target") from None


def needs_network(backend: Backend, target: str, entries: list[Entry]) -> bool:
    """Whether the target's nodes get their own network. Where that needs a sandbox, runs the whole command again inside one,
    and exits."""
    from linearizability.faults import sandbox
    from linearizability.targets import WrongTarget, open_target
    from linearizability.targets.cluster import CUTS, ClusterTarget

    if sandbox.inside():
        return True
    try:
        sketch = open_target(target, folder=Path())
    except WrongTarget as error:
        raise typer.BadParameter(str(error), param_hint="--target") from None
    cluster = isinstance(sketch, ClusterTarget) and sketch.size > 1
    wanted = cluster and any(set(entry.requirement.needs.hooks) & set(CUTS) for entry in entries)
    if backend is Backend.PLAIN or (backend is Backend.AUTO and not wanted):
        return False
    reason = sandbox.obstacle() if isinstance(sketch, ClusterTarget) else "the target brings its own processes"
    if reason and backend is Backend.NETNS:
        raise typer.BadParameter(f"no network namespaces: {reason}", param_hint="--backend")
    if reason:
        print(f"without cuts of the network: {reason}", file=sys.stderr)
        return False
    assert isinstance(sketch, ClusterTarget)
    sketch.prepare()
    raise typer.Exit(sandbox.command_in_sandbox(sys.argv[1:]))
