"""A requirement's connections to a target, and its requests in the versions that the target serves."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Self, cast

from conformance.answers import errors_in, only
from conformance.observations import READY_WITHIN_S, Observations
from conformance.requirement import Requirement
from conformance.results import Lack
from conformance.steps import built_on
from conformance.subject import Subject
from conformance.target_profile import BY_TOPIC_ID
from conformance.wire import CLIENT_ID, BrokerConnection, Failed, Misbehaved, NoAnswer
from linearizability.client.requests import GROUP, LEAST_WAIT_MS, TRANSACTION, Topic
from linearizability.targets.addresses import AddressMap
from linearizability.targets.wire import FIRST_FLEXIBLE, NAMED
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.schema import Message

CLOSED_WITHIN_S = 5.0
"""How long a target may take to close a connection that it must close."""
POLL_S = 0.1
IDLE_S = 5.0
"""A connection that was idle for longer is checked for a close before its reuse (connections.max.idle.ms closes idle ones)."""
CONTROLLERS = ("CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments",
               "ListPartitionReassignments", "UpdateFeatures", "AlterUserScramCredentials")  # fmt: skip
"""APIs that only the controller serves, unless brokers forward them (since KRaft; KIP-590)."""
FORWARDED = (*CONTROLLERS, "DescribeQuorum", "AlterConfigs", "IncrementalAlterConfigs")
"""APIs that brokers of a KRaft cluster forward to the controller."""
FORWARDED_WITHIN_S = 45.0
"""How long a forwarded request may take where a node is frozen: a broker sends it to the last controller that answered, and
to another one after 30 s without a response (NodeToControllerRequestThread; controller.socket.timeout.ms)."""
AUTHENTICATING = ("SaslHandshake", "SaslAuthenticate")
"""APIs that begin a connection: a broker, or a proxy, may treat the bytes after them as the SASL mechanism's own."""
ESSENTIAL = {"session_id", "session_epoch", "key_type", "types_filter", "states_filter", "resource_types",
             "current_leader_epoch"}  # fmt: skip
"""Fields that the schemas mark as ignorable, but whose omission changes the request's meaning."""
COORDINATED_BY = {GROUP: "offsets.topic.replication.factor", TRANSACTION: "transaction.state.log.replication.factor"}
"""Key type -> the configuration with the replication factor of its coordinators' topic."""


class Conversation(Observations):
    """Records each request as evidence. A context manager that closes its connections at the end."""

    def __init__(self, subject: Subject, record: Requirement, *, patience: float = 1.0, release: str = "") -> None:
        super().__init__(subject, record, patience=patience, release=release)
        self.entrance: tuple[str, int] | None = None
        """The address for requests that any broker can answer; None for the first bootstrap address."""
        self.hurt: set[tuple[str, int]] = set()
        """The addresses of nodes that are frozen or down; no request goes there."""
        self.scattered: set[str] = set()
        """Topics whose partitions have several leaders, although the assignment named one."""
        self._connections: list[BrokerConnection] = []
        self._by_address: dict[tuple[str, int], BrokerConnection] = {}
        self._of_members: dict[str, tuple[tuple[str, int], BrokerConnection]] = {}
        """Member id -> the coordinator's address, and the member's connection to it."""

    def __enter__(self) -> Self:
        with self.subject.lock:
            self.subject.views.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self.subject.lock:
            self.subject.views.remove(self)
        for connection in self._connections:
            connection.close()

    def abandon(self) -> None:
        """End every wait and every request of this requirement at once. Called from another thread."""
        self.abandoned = True
        self.deadline.at_s = 0.0
        for connection in list(self._connections):
            connection.interrupt()

    # ---- connections

    @property
    def address(self) -> tuple[str, int]:
        """The first bootstrap address, unless `entrance` was set to another."""
        return self.entrance or self.subject.bootstrap[0]

    @property
    def target(self) -> Any:
        """The open target, for its hooks (kill, restart, pause ...). The record's `hooks` list those that the requirement
        uses."""
        return self.subject.target

    def connect(
        self, address: tuple[str, int] | None = None, *, client_id: str | None = CLIENT_ID, timeout_s: float = 10.0
    ) -> BrokerConnection:
        """Open a connection to an address, by default `self.address`, translated by the target's address map."""
        where = self.reach(address or self.address)
        client_id = self.subject.client_id if client_id == CLIENT_ID else client_id
        connection = BrokerConnection(
            where, self.recorder, self.deadline, timeout_s=timeout_s, client_id=client_id, check=self._expect_sayable
        )
        self._connections.append(connection)
        return connection

    def reach(self, address: tuple[str, int]) -> tuple[str, int]:
        """The address under which this machine reaches an advertised one."""
        return getattr(self.target, "addresses", AddressMap()).reach(*address)

    def connection(self, address: tuple[str, int] | None = None) -> BrokerConnection:
        """The shared connection to an address. Opens a new one where the last was closed by either side."""
        key = address or self.address
        if key not in self._by_address or self._by_address[key].is_over(IDLE_S):
            self._by_address[key] = self.connect(key)
        return self._by_address[key]

    def belongs_to(self, member_id: str, address: tuple[str, int], connection: BrokerConnection) -> None:
        """Let a member's requests go by its own connection to its coordinator, as a client's do.

        Some brokers know a member only there, which no client notices.
        """
        self._of_members[member_id] = address, connection

    def _connection_for(self, request: Message, address: tuple[str, int] | None) -> BrokerConnection:
        """The connection of the member that sends this request, unless a response is awaited there; else the shared one."""
        key = address or self.address
        of_coordinator, own = self._of_members.get(getattr(request, "member_id", ""), (None, None))
        if own is not None and of_coordinator == key and own.is_free and not own.is_over(IDLE_S):
            return own
        return self.connection(key)

    def hang_up(self, addresses: Collection[tuple[str, int]]) -> None:
        """Close the shared connections to these addresses; the next request to one of them opens a new one."""
        for address in addresses:
            if address in self._by_address:
                self._by_address.pop(address).close()

    # ---- requests

    def call(
        self,
        request: Message,
        version: int | None = None,
        *,
        to: BrokerConnection | tuple[str, int] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request and return its response, by default in the highest version that both sides support.

        `to` is a connection, or an address, whose shared connection is used, or the sending member's own. Without it a request
        that only the controller serves goes to the controller, as admin clients do: brokers of a KRaft quorum forward it, others
        need not. It is also repeated on NOT_CONTROLLER, as clients do: a target that has just started may still elect one.
        """
        answer = self._call(request, version, to, timeout_s)
        until = time.monotonic() + READY_WITHIN_S * self.patience
        while to is None and _refused_by_controller(request, answer) and time.monotonic() < until:
            answer = self._call(request, version, self.controller(), timeout_s)
            if _refused_by_controller(request, answer):
                time.sleep(POLL_S)
        return answer

    def _call(
        self,
        request: Message,
        version: int | None,
        to: BrokerConnection | tuple[str, int] | None,
        timeout_s: float | None,
    ) -> Any:
        version = self.version_for(request, version)
        # a fetch without a wait gets the shortest one that the profile allows; requirements about waiting set their own
        least_ms = self.subject.profile.fetch_wait_ms
        if isinstance(request, FetchRequest) and request.max_wait_ms == LEAST_WAIT_MS < least_ms:
            request.max_wait_ms = least_ms
        name = APIS[type(request).KEY].name
        if to is None and name in CONTROLLERS and self.subject.nodes > 1:
            to = self.controller()
        if name in FORWARDED and self.hurt:
            timeout_s = max(timeout_s or 0.0, FORWARDED_WITHIN_S)
        if name in AUTHENTICATING and not isinstance(to, BrokerConnection):
            to = self.connect(to)
        connection = to if isinstance(to, BrokerConnection) else self._connection_for(request, to)
        try:
            return connection.call(request, version, timeout_s=timeout_s)
        except Misbehaved:
            connection.close()
            raise

    def _expect_sayable(self, request: Message, version: int) -> None:
        """Skips where the target does not serve the version, or the version lacks a field that the request needs.

        Allows every request before the version ranges are known, and every ApiVersions.
        """
        table = type(request)
        if table is ApiVersionsRequest or not self.subject.api_versions:
            return
        lowest, highest = self.subject.api_versions.get(table.KEY, (0, -1))
        if not lowest <= version <= highest:
            self.skip(f"needs {APIS[table.KEY].name} v{version}; the target serves {lowest} to {highest}", Lack.API)
        lacking = next(unsayable(request, version), "")
        if lacking:
            self.skip(f"needs {lacking} in {APIS[table.KEY].name}, which v{version} does not carry", Lack.API)
        self._expect_one_leader(request)

    def _expect_one_leader(self, request: Message) -> None:
        """Skips where one request names partitions of several leaders."""
        asked: list[Any] = [*request.topic_data] if isinstance(request, ProduceRequest) else []
        if isinstance(request, FetchRequest | ListOffsetsRequest):
            asked = [*request.topics]
        self._need_one_leader(
            [one.topic if hasattr(one, "topic") else one.name for one in asked for _ in _partitions(one)]
        )

    def needs_one_leader(self, topics: Iterable[Topic]) -> None:
        """Skips where a topic that is listed more than once (once for each partition in use) has several leaders."""
        self._need_one_leader([topic.name for topic in topics])

    def _need_one_leader(self, names: Sequence[str]) -> None:
        if any(names.count(name) > 1 for name in self.scattered):
            self.skip(
                "needs partitions that one broker leads; the target places them otherwise than it is asked to (TOP-07)"
            )

    def needs_config(self, name: str, value: str) -> None:
        """Skips where the broker describes another value. Assumes this value where the broker describes none, or the record
        needs the configuration, so that it is in force."""
        held = self.subject.profile.configs.get(name)
        if held not in (None, value) and name not in self.requirement.needs.configs:
            self.skip(f"needs {name}={value}; the target has {held}", Lack.CONFIGURATION)

    def needs_deletion(self) -> None:
        """Skips where delete.topic.enable is not true."""
        self.needs_config("delete.topic.enable", "true")

    def version_for(self, request: Message | type[Message], version: int | None = None) -> int:
        """The given version, or by default the highest that both sides support and the target serves.

        Skips where the target does not advertise or serve it.
        """
        table = request if isinstance(request, type) else type(request)
        lowest, highest = self.versions_of(table) if version is None else self.advertised(table)
        if version is None:
            lowest, highest = self.subject.profile.served(APIS[table.KEY].name, lowest, highest)
            if lowest > highest:
                self.skip(
                    f"needs {APIS[table.KEY].name}, which the target advertises and does not serve (API-05)", Lack.API
                )
            return highest
        if not lowest <= version <= highest:
            self.skip(f"needs {APIS[table.KEY].name} v{version}; the target serves {lowest} to {highest}", Lack.API)
        if not self.subject.profile.topic_ids and version >= BY_TOPIC_ID.get(APIS[table.KEY].name, version + 1):
            self.skip(f"needs topic ids for {APIS[table.KEY].name} v{version}, and the target reports none", Lack.API)
        return version

    def versions_of(self, request: type[Message]) -> tuple[int, int]:
        """The versions that the target advertises and this suite supports, without those of a feature that is switched off.
        Skips where none remains. Of versions that are not served all together, the newest that are."""
        lowest, highest = self.advertised(request)
        name = APIS[request.KEY].name
        highest = min(highest, self.subject.profile.switched_off.get(name, highest + 1) - 1)
        if lowest > highest:
            self.skip(f"needs {name}, and the target's feature for it is switched off", Lack.CONFIGURATION)
        return self.subject.profile.newest_served(name, lowest, highest)

    def serves(self, request: type[Message]) -> bool:
        """Whether the target advertises a version of an API that needs no switched-off feature."""
        lowest, _ = self.subject.api_versions.get(request.KEY, (0, -1))
        off = self.subject.profile.switched_off.get(APIS[request.KEY].name, lowest + 1)
        return request.KEY in self.subject.api_versions and lowest < off

    def advertised(self, request: type[Message]) -> tuple[int, int]:
        """The versions that both sides have, served or not. Skips where there is none."""
        name = APIS[request.KEY].name
        if request.KEY not in self.subject.api_versions:
            self.skip(f"the target does not advertise {name}", Lack.API)
        lowest, highest = self.subject.api_versions[request.KEY]
        lowest, highest = max(lowest, request.VERSIONS.lowest), min(highest, request.VERSIONS.highest)
        if lowest > highest:
            self.skip(f"the target serves no version of {name} that this suite knows", Lack.API)
        return lowest, highest

    def versions_among(self, request: type[Message], *wanted: int) -> list[int]:
        """The given versions that the target serves, and the version that helpers use."""
        lowest, highest = self.versions_of(request)
        return sorted({one for one in wanted if lowest <= one <= highest} | {self.version_for(request)})

    @built_on("BAS-01")
    def metadata(
        self,
        topics: list[MetadataRequest.MetadataRequestTopic] | None,
        *,
        version: int | None = None,
        auto_create: bool = False,
        to: BrokerConnection | tuple[str, int] | None = None,
    ) -> Any:
        """The Metadata response for these topics; None requests all topics. Versions below 4 always allow auto-creation."""
        version = self.version_for(MetadataRequest, version)
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto_create or version < 4)
        return self.call(request, version, to=to)

    def controller(self) -> tuple[str, int]:
        """The address of the controller from Metadata; the default address where it names none, or a frozen or stopped node.

        Brokers of a KRaft cluster name one of themselves at random, which may be one that the requirement has frozen.
        """
        answer = self.metadata([])
        named = [(one.host, one.port) for one in answer.brokers if one.node_id == answer.controller_id]
        return named[0] if named and named[0] not in self.hurt else self.address

    @built_on("BAS-06")
    def coordinator(self, key: str, key_type: int = GROUP) -> tuple[str, int]:
        """Wait for the coordinator of a group or a transactional id, and return its address."""

        def found() -> tuple[str, int] | None:
            version = self.version_for(FindCoordinatorRequest)
            if version >= 4:
                answer = self.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), version)
                answer = only(answer.coordinators, f"coordinator of {key}")
            else:
                answer = self.call(FindCoordinatorRequest(key=key, key_type=key_type), version)
            return (answer.host, answer.port) if answer.error_code == ErrorCode.NONE else None

        try:
            return self.eventually(found, f"{key} has a coordinator")
        except NoAnswer:
            self._say_of_replicas(COORDINATED_BY.get(key_type, ""))
            raise

    def _say_of_replicas(self, setting: str) -> None:
        """Note a replication factor of the coordinators' topic above the number of nodes: then no coordinator exists. Kafka's
        default is 3."""
        wanted = self.subject.profile.configs.get(setting) or ""
        if wanted.isdecimal() and int(wanted) > self.subject.nodes:
            nodes = "1 node" if self.subject.nodes == 1 else f"{self.subject.nodes} nodes"
            self.saw(f"the target has {nodes}, and is configured with {setting}={wanted}")

    # ---- whether it is alive

    def expect_closed(
        self, connection: BrokerConnection, *, what: str = "the connection", may_answer: bool = False
    ) -> None:
        """Require that the target closes the connection without a response; with `may_answer` a response is tolerated."""
        said = connection.wait_closed(CLOSED_WITHIN_S)
        if said is None:
            raise Failed(f"{what} is still open after {CLOSED_WITHIN_S:g} s")
        if said:
            answered = f"{what} was answered with {len(said)} bytes before it was closed: {said[:40].hex(' ')}"
            if not may_answer:
                raise Failed(answered)
            self.tolerate(answered)
        else:
            self.saw(f"{what} was closed without an answer")

    def expect_served(self, *, what: str = "another connection is served") -> None:
        """Require that the broker answers ApiVersions on a new connection."""
        self.expect(self.api_versions().error_code == ErrorCode.NONE, what)

    def api_versions(self) -> Any:
        """The response to ApiVersions on a new connection, in the version that the probe found to work."""
        version = self.subject.profile.asked_in
        with self.connect() as connection:
            return connection.call(NAMED if version >= FIRST_FLEXIBLE else ApiVersionsRequest(), version)


def _refused_by_controller(request: Message, answer: Message) -> bool:
    """Whether a broker refused, with NOT_CONTROLLER, a request that only the controller serves."""
    return APIS[type(request).KEY].name in CONTROLLERS and ErrorCode.NOT_CONTROLLER in errors_in(answer)


def _is_default(value: Any, default: Any) -> bool:
    """Whether a field has its default value, null or an empty list; a structure, whether all its fields do."""
    if isinstance(value, Message):
        return all(_is_default(getattr(value, each.name), each.default) for each in value.FIELDS)
    return value in (None, []) or value == default


def unsayable(message: Any, version: int) -> Iterator[str]:
    """The fields that a version lacks, and whose omission would change the meaning of the request."""
    for each in message.FIELDS:
        value = getattr(message, each.name)
        if version not in each.versions:
            if (each.name in ESSENTIAL or not each.ignorable) and not _is_default(value, each.default):
                yield each.name
        elif value is None and version not in each.nullable:
            yield f"{each.name} that is null"
        elif isinstance(each.element, type) and value is not None:
            for one in cast(list[Any], value) if isinstance(value, list) else [value]:
                yield from unsayable(one, version)


def _partitions(topic: Any) -> Sequence[Any]:
    """The partitions of one topic in a Produce, Fetch or ListOffsets request."""
    return topic.partition_data if hasattr(topic, "partition_data") else topic.partitions
