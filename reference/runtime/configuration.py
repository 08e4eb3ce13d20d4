"""The broker's configuration file: Kafka's `server.properties`, Kafka's names, every wrong line named.

Values are checked twice: each against the table of names (type and bounds), and together by the model below (roles,
listeners, voters). An error of the file raises `ConfigurationError` with one sentence. A name that is not in the table may be a
plugin's: as in Kafka it is accepted, and named in the log (`remarks`).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from reference.controller.broker_rules import refused_file
from reference.controller.config_definition import REQUIRED, InvalidConfig
from reference.controller.config_table import BROKER, TOPIC
from reference.coordinator.target_assignment import ASSIGNORS
from reference.node.listeners import PLAINTEXT, protocols_of
from reference.node.preferred_replicas import SELECTORS
from reference.protocol.primitives import NodeId
from reference.runtime.security import (
    AUTHORIZER_SETTINGS,
    is_open,
    is_served_on_listener,
    refused_line,
    refused_listener,
    refused_with_zookeeper,
)
from reference.runtime.without_effect import without_effect
from reference.security.java_properties import logical_lines

EXTENSIONS = {
    "tidegauge.metrics.listener": "HOST:PORT of the Prometheus metrics endpoint; none by default",
    "tidegauge.log.format": "text or json",
    "tidegauge.peers.release": "4.3.1, or 3.9.2 beside nodes of Apache Kafka 3.9: the API versions in which others are asked",
    "tidegauge.replica.truncation": "leader-epoch, or high-watermark as before KIP-101, which loses records: for tests of tests",
    "tidegauge.trace.file": "a file for the trace of specification-level steps; none by default",
}
"""Names of our own; everything else is Kafka's."""

INTER_BROKER_PROTOCOL = "inter.broker.protocol.version"
PEERS_RELEASES = {"3.9": "3.9.2", "3.9-IV0": "3.9.2", "2.8": "2.8", "2.8-IV1": "2.8"}
"""Inter-broker protocol -> tidegauge.peers.release."""
ZOOKEEPER_SETTINGS = frozenset(
    {"broker.id", "zookeeper.connect", "zookeeper.session.timeout.ms", INTER_BROKER_PROTOCOL}
)
"""Names of Kafka up to 3.9 for brokers that ZooKeeper coordinates: those that have no process.roles."""
BY_ZOOKEEPER = {"process.roles": "broker"}
"""Further settings of such a broker."""

ASSIGNORS_SETTING = "group.consumer.assignors"
OWN_PREFIX = "tidegauge."


class ConfigurationError(ValueError):
    """A configuration that cannot be run; the message is the one line that the operator needs."""


MAX_PORT = 65535
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class Listener(BaseModel):
    """One `NAME://HOST:PORT`; an empty host is every address."""

    model_config = ConfigDict(frozen=True)

    name: str
    host: str
    port: int = Field(ge=0, le=65535)

    @staticmethod
    def parse(text: str) -> Listener:
        found = re.fullmatch(r"([A-Za-z0-9_-]+)://(\[[0-9a-fA-F:]+\]|[^:/]*):(-?\d+)", text.strip())
        if not found:
            raise ValueError(f"'{text}' is no listener: NAME://HOST:PORT is needed")
        name, host, port = found.groups()
        if not 0 <= int(port) <= 65535:
            raise ValueError(f"'{text}': port {port} is not between 0 and 65535")
        return Listener(name=name.upper(), host=host.strip("[]"), port=int(port))


class Voter(BaseModel):
    """One `ID@HOST:PORT` of controller.quorum.voters."""

    model_config = ConfigDict(frozen=True)

    id: int
    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Voter:
        found = re.fullmatch(r"(\d+)@([^:@]+):(\d+)", text.strip())
        if not found:
            raise ValueError(f"'{text}' is no voter: ID@HOST:PORT is needed")
        return Voter(id=int(found[1]), host=found[2], port=int(found[3]))


def _address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. Errors: ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) <= MAX_PORT:
        raise ValueError(f"controller.quorum.bootstrap.servers: '{text}' is not HOST:PORT")
    return host.strip("[]"), int(port)


def _list(value: Any) -> Any:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _listeners(value: Any) -> Any:
    return [Listener.parse(item) for item in _list(value)] if isinstance(value, str) else value


def _metrics_listener(value: Any) -> Any:
    """Parse HOST:PORT; an empty host is 127.0.0.1."""
    try:
        listener = Listener.parse(f"METRICS://{value}")
    except ValueError:
        raise ValueError(f"tidegauge.metrics.listener: '{value}' is not HOST:PORT") from None
    return listener if listener.host else listener.model_copy(update={"host": "127.0.0.1"})


def _voters(value: Any) -> Any:
    return [Voter.parse(item) for item in _list(value)] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_list)]
Listeners = Annotated[list[Listener], BeforeValidator(_listeners)]
Voters = Annotated[list[Voter], BeforeValidator(_voters)]
MetricsListener = Annotated[Listener, BeforeValidator(_metrics_listener)]


class ServerConfiguration(BaseModel):
    """The settings that the shell itself needs; the node reads the rest, `properties`, by name."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore", arbitrary_types_allowed=True)

    node_id: NodeId = Field(alias="node.id", ge=0)
    process_roles: Names = Field(alias="process.roles")
    listeners: Listeners = Field(alias="listeners")
    advertised_listeners: Listeners = Field(alias="advertised.listeners", default_factory=list[Listener])
    controller_listener_names: Names = Field(alias="controller.listener.names", default_factory=list[str])
    voters: Voters = Field(alias="controller.quorum.voters", default_factory=list[Voter])
    log_dirs: Names = Field(alias="log.dirs")
    metadata_log_dir: str | None = Field(alias="metadata.log.dir", default=None)
    metrics_listener: MetricsListener | None = Field(alias="tidegauge.metrics.listener", default=None)
    log_format: str = Field(alias="tidegauge.log.format", default="text", pattern="^(text|json)$")
    truncation: str = Field(
        alias="tidegauge.replica.truncation", default="leader-epoch", pattern="^(leader-epoch|high-watermark)$"
    )
    peers_release: str = Field(alias="tidegauge.peers.release", default="4.3.1", pattern=r"^(4\.3\.1|3\.9\.2|2\.8)$")
    zookeeper: str | None = Field(alias="zookeeper.connect", default=None)
    """HOST:PORT[,…][/CHROOT] of the ZooKeeper that coordinates, in the place of a metadata quorum."""
    zookeeper_session_ms: int = Field(alias="zookeeper.session.timeout.ms", default=18_000, ge=1)
    trace_file: Path | None = Field(alias="tidegauge.trace.file", default=None)
    properties: dict[str, str] = Field(default_factory=dict[str, str])

    @model_validator(mode="before")
    @classmethod
    def _synonyms(cls, given: Any) -> Any:
        values = dict(given)
        if "node.id" not in values and "broker.id" in values:
            values["node.id"] = values["broker.id"]
        if "log.dirs" not in values and "log.dir" in values:
            values["log.dirs"] = values["log.dir"]
        return values

    @model_validator(mode="after")
    def _together(self) -> ServerConfiguration:
        for role in self.process_roles:
            if role not in ("broker", "controller"):
                raise ValueError(f"process.roles: '{role}' is neither broker nor controller")
        if not self.process_roles:
            raise ValueError("process.roles is empty: broker, controller or both are needed")
        if not self.log_dirs:
            raise ValueError("log.dirs is empty: a folder is needed")
        if self.peers_release == PEERS_RELEASES["2.8"] and self.zookeeper is None:
            raise ValueError("tidegauge.peers.release: 2.8 has no metadata quorum; it needs zookeeper.connect")
        names = [listener.name for listener in self.listeners]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"listeners: the name {name} is used twice")
        for name in self.controller_listener_names:
            if "controller" in self.process_roles and name.upper() not in names:
                raise ValueError(f"controller.listener.names: {name} is not among the listeners {', '.join(names)}")
        for listener in self.advertised_listeners:
            if listener.name not in names:
                raise ValueError(f"advertised.listeners: {listener.name} is not among the listeners {', '.join(names)}")
        controllers = [*map(str.upper, self.controller_listener_names)]
        refused = refused_listener(self.properties, names, controllers)
        if refused is not None:
            raise ValueError(f"listeners: {refused}")
        ids = [voter.id for voter in self.voters]
        if len(set(ids)) != len(ids):
            raise ValueError("controller.quorum.voters names a node twice")
        if "controller" in self.process_roles and ids and self.node_id not in ids:
            raise ValueError(
                f"node.id {self.node_id} has the role controller, but is not among controller.quorum.voters"
            )
        if "controller" not in self.process_roles and self.node_id in ids:
            raise ValueError(
                f"node.id {self.node_id} is among controller.quorum.voters, but does not have the role controller"
            )
        others = self.other_controllers
        if self.process_roles == ["controller"] and {*names} - {*controllers}:
            raise ValueError(
                f"listeners: {', '.join(sorted({*names} - {*controllers}))} is none of controller.listener.names, "
                "and a node that is no broker has no others"
            )
        if not ids and not others and "controller" not in self.process_roles and self.zookeeper is None:
            raise ValueError(
                f"node.id {self.node_id} is no controller, and neither controller.quorum.voters nor "
                "controller.quorum.bootstrap.servers names one"
            )
        return self

    @property
    def other_controllers(self) -> list[tuple[str, int]]:
        """The controllers that the node asks for the voter set, where controller.quorum.voters is not set (KIP-853)."""
        servers = _list(self.properties.get("controller.quorum.bootstrap.servers", ""))
        found = [_address(each) for each in servers if not self._is_own_controller(each)]
        return [] if self.voters else found

    def _is_own_controller(self, address: str) -> bool:
        """Whether HOST:PORT is a controller's listener of this node, as far as names show: all nodes may have one port."""
        host, _, port = address.rpartition(":")
        names = {*map(str.upper, self.controller_listener_names)}
        listeners = [each for each in (*self.listeners, *self.advertised_listeners) if each.name in names]
        hosts = {*LOCAL_HOSTS, socket.gethostname(), *(each.host.strip("[]") for each in listeners)}
        return port in {str(each.port) for each in listeners} and host.strip("[]") in hosts

    @property
    def folder(self) -> Path:
        """The folder of the metadata log."""
        return Path(self.metadata_log_dir or self.log_dirs[0]).absolute()

    @property
    def data_folders(self) -> list[Path]:
        """The folders of log.dirs."""
        return [Path(each).absolute() for each in self.log_dirs]

    @property
    def folders(self) -> list[Path]:
        """The folder of the metadata log and those of log.dirs, each once."""
        return [*dict.fromkeys((self.folder, *self.data_folders))]

    def is_controller_listener(self, name: str) -> bool:
        return name in {given.upper() for given in self.controller_listener_names}

    def advertised(self, listener: Listener) -> Listener:
        """The address that clients receive for a listener."""
        for given in self.advertised_listeners:
            if given.name == listener.name:
                return given
        return listener


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Parse Java's properties.

    Errors: ConfigurationError that names the line, also for a duplicate name.
    """
    values: dict[str, str] = {}
    for number, name, value in logical_lines(text):
        if value is None:
            raise ConfigurationError(f"{source}, line {number}: '{name}' is not NAME=VALUE")
        if name in values:
            raise ConfigurationError(f"{source}, line {number}: {name} is set twice")
        values[name] = value
    return values


def load_configuration(path: Path) -> ServerConfiguration:
    """Read and check a configuration file. Errors: ConfigurationError with a message of one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return check_configuration(parse_properties(text, str(path)), str(path))


def check_configuration(properties: Mapping[str, str], source: str) -> ServerConfiguration:
    """Check names, then values, then their combination. Errors: ConfigurationError."""
    for name, text in properties.items():
        definition = BROKER.get(name)
        if definition is None:
            if name.startswith(OWN_PREFIX) and name not in EXTENSIONS:
                raise ConfigurationError(f"{source}: unknown configuration name '{name}'")
            continue
        try:
            definition.parse(name, text)
        except InvalidConfig as error:
            raise ConfigurationError(f"{source}: {error}") from error
    refused = refused_line(properties, {name: each.default for name, each in BROKER.items()})
    if refused is not None:
        raise ConfigurationError(f"{source}: {refused}")
    try:
        refused = refused_file(properties, _list(properties.get("log.dirs", properties.get("log.dir", ""))))
    except InvalidConfig as error:
        refused = str(error)
    if refused is not None:
        raise ConfigurationError(f"{source}: {refused}")
    strange = {*_list(properties.get(ASSIGNORS_SETTING, ""))} - {*ASSIGNORS}
    if strange:
        raise ConfigurationError(
            f"{source}: {ASSIGNORS_SETTING}={','.join(sorted(strange))}: only {', '.join(ASSIGNORS)} can be served"
        )
    selector = properties.get("replica.selector.class", "").strip()
    if selector not in SELECTORS:
        raise ConfigurationError(
            f"{source}: replica.selector.class={selector}: only {' and '.join(SELECTORS[1:])} can be served"
        )
    if "process.roles" not in properties and "zookeeper.connect" in properties:
        properties = {**BY_ZOOKEEPER, **properties, "process.roles": BY_ZOOKEEPER["process.roles"]}
        zookeeper = properties["zookeeper.connect"].strip()
        if not zookeeper:
            raise ConfigurationError(f"{source}: zookeeper.connect is empty")
        protocol = properties.get(INTER_BROKER_PROTOCOL, "3.9")
        if protocol not in PEERS_RELEASES:
            raise ConfigurationError(
                f"{source}: {INTER_BROKER_PROTOCOL}={protocol}: only {', '.join(PEERS_RELEASES)} can be served"
            )
        properties["tidegauge.peers.release"] = PEERS_RELEASES[protocol]
        refused = refused_with_zookeeper(properties)
        if refused is not None:
            raise ConfigurationError(f"{source}: {refused}")
    else:
        zookeeper = None
    for name in ("node.id", "process.roles"):
        if (
            name not in properties
            and BROKER[name].default == REQUIRED
            and not (name == "node.id" and "broker.id" in properties)
        ):
            raise ConfigurationError(f"{source}: {name} is missing")
    if "log.dirs" not in properties and "log.dir" not in properties:
        raise ConfigurationError(f"{source}: log.dirs is missing")
    both = {"broker.id": properties["node.id"]} if "node.id" in properties else {}  # kafka-configs shows them
    given: dict[str, Any] = {"listeners": "PLAINTEXT://:9092", **properties, "properties": both | dict(properties)}
    given["zookeeper.connect"] = zookeeper
    try:
        return ServerConfiguration.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{source}: {where + ': ' if where else ''}{message}") from error


def remarks(configuration: ServerConfiguration) -> list[str]:
    """Warnings about a valid configuration for the log, one sentence each."""
    controllers = map(str.upper, configuration.controller_listener_names)
    listeners = {*(each.name for each in configuration.listeners), *controllers}
    found = [
        f"unknown configuration name '{name}': it has no effect{_hint(name)}"
        for name in configuration.properties
        if name not in BROKER
        and not (name in ZOOKEEPER_SETTINGS and configuration.zookeeper is not None)
        and name not in EXTENSIONS
        and name not in AUTHORIZER_SETTINGS
        and not is_served_on_listener(name, listeners)
    ]
    found += without_effect(configuration.properties)
    verifies = (
        configuration.properties.get("transaction.partition.verification.enable", "true").strip().lower() == "true"
    )
    if configuration.peers_release == PEERS_RELEASES["2.8"] and verifies:
        found.append(
            f"transaction.partition.verification.enable has no effect on transactions that another broker coordinates: with "
            f"{INTER_BROKER_PROTOCOL}=2.8 none can be asked"
        )
    authorizer = "" if configuration.properties.get("authorizer.class.name") else ", and no authorizer"
    found += [
        f"listener {each.name}://{each.host}:{each.port} is open to everyone who can reach it: there is no encryption "
        f"and no authentication{authorizer}"
        for each in configuration.listeners
        if is_open(each.host) and protocols_of(configuration.properties)[each.name] == PLAINTEXT
    ]
    return found


def _hint(name: str) -> str:
    if name in TOPIC and TOPIC[name].synonyms:
        return f"; for topics' default the broker's name is {TOPIC[name].synonyms[0]}"
    return ""
