"""The first voters of a new cluster, as `tidegauge format` takes them: the options of Apache Kafka's kafka-storage (KIP-853)."""

from __future__ import annotations

import re
import socket
import uuid
from dataclasses import dataclass
from uuid import UUID

from reference.controller.image import Endpoint
from reference.controller.quorum_voters import LEVELS, Voter, VoterSet
from reference.protocol.primitives import NodeId
from reference.runtime.configuration import ConfigurationError, ServerConfiguration
from reference.storage.checkpoints import MOST_RESERVED, uuid_of_text
from reference.storage.errors import CorruptFile

_CONTROLLER = re.compile(r"(\d+)@(\[[0-9a-fA-F:]+\]|[^:@]+):(\d+):([A-Za-z0-9_-]{22})")


@dataclass(frozen=True, slots=True)
class FirstVoters:
    """The voters that a folder is formatted with, and the directory id that it gets."""

    directory: UUID
    voters: VoterSet | None = None
    """None for a node that asks other nodes for the voter set."""


def controller_endpoints(
    configuration: ServerConfiguration, ports: dict[str, int] | None = None
) -> tuple[Endpoint, ...]:
    """The addresses of this node's controller for other nodes; `ports` are the bound ones, for a port of 0."""
    found: list[Endpoint] = []
    for listener in configuration.listeners:
        if configuration.is_controller_listener(listener.name):
            advertised = configuration.advertised(listener)
            port = advertised.port or (ports or {}).get(listener.name, 0)
            found.append(Endpoint(listener.name, advertised.host or socket.gethostname(), port))
    return tuple(found)


def standalone(configuration: ServerConfiguration) -> FirstVoters:
    """Voters with this node alone. Errors: ConfigurationError."""
    _refuse_static(configuration, "--standalone")
    _require_controller(configuration, "--standalone")
    directory = uuid.uuid4()
    voter = Voter(configuration.node_id, directory, controller_endpoints(configuration), LEVELS)
    return FirstVoters(directory, VoterSet([voter]))


def initial_controllers(configuration: ServerConfiguration, text: str) -> FirstVoters:
    """The voters of `ID@HOST:PORT:DIRECTORY-ID,...`, of which this node is one. Errors: ConfigurationError."""
    _refuse_static(configuration, "--initial-controllers")
    _require_controller(configuration, "--initial-controllers")
    listener = configuration.controller_listener_names[0].upper()
    voters = [_voter(item.strip(), listener) for item in text.split(",") if item.strip()]
    if len({voter.id for voter in voters}) != len(voters):
        raise ConfigurationError("--initial-controllers names a node twice")
    own = [voter for voter in voters if voter.id == configuration.node_id]
    if not own:
        raise ConfigurationError(f"--initial-controllers does not name node.id {configuration.node_id}")
    return FirstVoters(own[0].directory, VoterSet(voters))


def no_initial_controllers(configuration: ServerConfiguration) -> FirstVoters:
    """No voters: this node asks others for them. Errors: ConfigurationError where no other node is configured."""
    _refuse_static(configuration, "--no-initial-controllers")
    if not configuration.other_controllers:
        raise ConfigurationError("--no-initial-controllers: controller.quorum.bootstrap.servers names no other node")
    return FirstVoters(uuid.uuid4())


def _voter(text: str, listener: str) -> Voter:
    found = _CONTROLLER.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"--initial-controllers: '{text}' is not ID@HOST:PORT:DIRECTORY-ID")
    id, host, port, directory = found.groups()
    try:
        directory_id = uuid_of_text(directory)
    except CorruptFile as error:
        raise ConfigurationError(f"--initial-controllers: {error}") from error
    if directory_id.int <= MOST_RESERVED:
        raise ConfigurationError(f"--initial-controllers: the directory id {directory} is reserved")
    return Voter(NodeId(int(id)), directory_id, (Endpoint(listener, host.strip("[]"), int(port)),), LEVELS)


def _refuse_static(configuration: ServerConfiguration, option: str) -> None:
    if configuration.voters:
        raise ConfigurationError(f"{option}: controller.quorum.voters is set, which makes the voters static")


def _require_controller(configuration: ServerConfiguration, option: str) -> None:
    if "controller" not in configuration.process_roles:
        raise ConfigurationError(f"{option}: node.id {configuration.node_id} does not have the role controller")
