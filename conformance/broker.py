"""What a requirement's test holds in its hands: the broker under judgement, seen through the wire only.

Three kinds of methods: *saying* (`connect`, `call`, `produce`, `fetch` ...), *having* (`topic`, `end_offset`, `versions_of`
...) and *judging* (`expect`, `expect_error`, `tolerate`, `skip`, `case`). What is said is recorded as evidence, what is
judged is written down as seen.

The helpers follow the target's profile (`conformance.target_profile`): the versions that it serves, its message format, its
way to a topic. What a helper cannot do leaves the requirement *not judged*, with the reason; no test needs to ask first. A
helper that fails names the basic requirement that speaks of its step (`built_on`): where that one fails too, this one is
*blocked* by it.
"""

from __future__ import annotations

import functools
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar
from uuid import UUID

from conformance import batches as stored
from conformance.batches import MAGIC_AT, in_order, next_offset
from conformance.requirement import Requirement, version_key
from conformance.results import Case, Lack, Verdict
from conformance.target_profile import BY_TOPIC_ID, NEWEST_FORMAT, TargetProfile
from conformance.wire import CLIENT_ID, Connection, Deadline, DeadlinePassed, Failed, Misbehaved, NoAnswer, Recorder
from linearizability.client.requests import (
    GROUP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Topic,
    delete_records_request,
    fetch_request,
    list_offsets_request,
    new_topic,
    produce_request,
)
from linearizability.targets.addresses import AddressMap
from linearizability.targets.wire import FIRST_FLEXIBLE, NAMED
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Message

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")

CLOSED_WITHIN_S = 5.0
"""How long a target may take to close a connection that it must close."""
LONGEST_S = 180.0
"""The longest that patience makes a requirement, which may ask for more by itself: a slow target costs no hours."""
BEGUN_S = 2.0
"""A wait of less, which the end of the requirement's time cuts off, says nothing about the target."""
PLACEMENTS = 25
"""So many topics are made until all partitions of one have the leader that was asked for."""
READY_WITHIN_S = 15.0
"""How long a state that must come may take, unless the requirement says otherwise."""
POLL_S = 0.1
RESTARTED_WITHIN_S = 60.0
"""How long a node that was started again may take to lead its partitions: it may have a thousand of them to look through."""
METADATA_WITH_EPOCHS = 7
"""The first version of Metadata that has leader epochs (KIP-320)."""
FIRST_WITH_BATCHES = 3
"""The first version of Produce that carries record batches."""
CONTROLLERS = ("CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments",
               "ListPartitionReassignments", "UpdateFeatures")  # fmt: skip
"""APIs that only the controller answers, unless brokers forward them (since KRaft; KIP-590)."""
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""Special timestamps of ListOffsets."""
LONGEST_LOG_BYTES = 64 << 20
"""More than the suite writes into a partition."""
BROKER_RESOURCE, TOPIC_RESOURCE = 4, 2
"""Resource types of DescribeConfigs."""

RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Errors by which a broker says that it is not ready yet, and which the helpers wait out."""


ESSENTIAL = {"session_id", "session_epoch", "key_type", "types_filter", "states_filter", "resource_types",
             "current_leader_epoch"}  # fmt: skip
"""Fields that the schemas let a client leave out in silence, and without which it asks for something else."""
LEAST_WAIT_MS = 1
"""A fetch that shall not wait: as short as the target's profile allows. Requirements about waiting say their own time."""


class Skipped(Exception):
    """The requirement cannot be judged on this target. The text says why."""

    def __init__(self, reason: str, lacks: Lack = Lack.OTHER) -> None:
        super().__init__(reason)
        self.lacks = lacks


STEPS: set[str] = set()
"""The requirements that speak of helpers' steps: they are judged before all others."""


def built_on(id: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A helper whose failure is the business of a basic requirement: the first such helper that is met names it.

    A step that the target does not survive is not taken again: it fails at once, in all requirements but its own.
    """
    STEPS.add(id)

    def decorate(helper: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(helper)
        def guarded(*args: P.args, **options: P.kwargs) -> T:
            broker: Any = getattr(args[0], "broker", args[0])
            try:
                if id in broker.subject.profile.deadly and id != broker.requirement.id:
                    raise Failed(f"the target does not survive {id}")
                return helper(*args, **options)
            except Failed as failure:
                failure.built_on = failure.built_on or id
                raise

        return guarded

    return decorate


@contextmanager
def directly() -> Iterator[None]:
    """What fails in here, and in no helper's step, is blocked by nothing: what the requirement builds on was not used yet."""
    try:
        yield
    except Failed as failure:
        failure.direct = not failure.built_on
        raise


def errors_in(answer: Message) -> list[int]:
    """All error codes in an answer, wherever they stand."""
    return [int(code) for code in re.findall(r"error_code=(-?\d+)", repr(answer))]


@dataclass
class Subject:
    """The target while it is open: what all requirements share."""

    bootstrap: list[tuple[str, int]]
    kafka_version: str
    """The Kafka version whose behaviour is asked of it."""
    api_versions: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    target: Any = None
    """The open target of `linearizability.targets`, for its hooks; None for a plain address."""
    nodes: int = 1
    profile: TargetProfile = field(default_factory=TargetProfile)
    cluster_id: str = ""
    honoured: frozenset[str] = frozenset()
    """The configurations with which the suite started the target, and which the target heeds."""
    topics: list[str] = field(default_factory=list[str])
    """All that was made, to be cleaned away."""
    topic_ids: dict[UUID, str] = field(default_factory=dict[UUID, str])
    """Whose each id is."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Guards what requirements that run side by side share."""
    views: list[Broker] = field(default_factory=list)
    """The requirements under way."""
    folder: Path = Path()
    """Where evidence goes that is more than exchanges."""
    resembles_only: bool = False
    """Whether the Kafka version is a guess about a broker that may be no Apache Kafka."""
    hunt: Any = None
    """The short hunt on this start of the target, once it was made (`conformance.hunting`)."""

    def abandon(self) -> None:
        """Break off all requirements under way."""
        with self.lock:
            for view in list(self.views):
                view.abandon()

    def abandon_overdue(self, overrun_s: float) -> None:
        """Break off the requirements whose deadline passed so long ago."""
        with self.lock:
            for view in list(self.views):
                if time.monotonic() > view.ends_s + overrun_s:
                    view.abandon()


class Broker:
    """One requirement's view of the target. A context manager: its connections are closed at the end."""

    def __init__(self, subject: Subject, record: Requirement, *, patience: float = 1.0, release: str = "") -> None:
        self.subject = subject
        self.release = release or subject.kafka_version
        """The Kafka release whose behaviour is asked for here."""
        self.changes: set[str] = set()
        """The releases that brought a change on which the verdict depends."""
        self.requirement = record
        self.recorder = Recorder()
        self.abandoned = False
        """Whether it was broken off: what is seen after that says nothing about the target."""
        self.patience = patience
        """By how much waits are longer than for a target that answers at once."""
        self.deadline = Deadline.after(min(record.deadline_s * patience, max(record.deadline_s, LONGEST_S)))
        self.ends_s = self.deadline.at_s
        """When the whole requirement should be over, by the monotonic clock; a case may have less."""
        self.entrance: tuple[str, int] | None = None
        """Where requests go that any broker can answer; None: to the first bootstrap address."""
        self.hurt: set[tuple[str, int]] = set()
        """Addresses of nodes that are frozen or down: nothing is asked there."""
        self.seen: list[str] = []
        self.tolerances: list[str] = []
        self.cases: list[Case] = []
        self.lacks: list[Lack] = []
        """What the target lacks for the cases that are not judged."""
        self.scattered: set[str] = set()
        """Topics whose partitions have several leaders, although one was asked for."""
        self.built_on: list[str] = []
        """What the failures of cases name as their step's requirement."""
        self.late: list[bool] = []
        """Of each case that failed: whether it is for something that did not come in time."""
        self._connections: list[Connection] = []
        self._by_address: dict[tuple[str, int], Connection] = {}

    def __enter__(self) -> Broker:
        with self.subject.lock:
            self.subject.views.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self.subject.lock:
            self.subject.views.remove(self)
        for connection in self._connections:
            connection.close()

    def abandon(self) -> None:
        """From another thread: every wait and every request of this requirement ends now."""
        self.abandoned = True
        self.deadline.at_s = 0.0
        for connection in list(self._connections):
            connection.interrupt()

    def be_patient(self, patience: float) -> None:
        """Waits and the deadline grow to so many times those for a target that answers at once."""
        if patience > self.patience:
            own_s = self.requirement.deadline_s
            longest_s = max(own_s, LONGEST_S)
            more_s = min(own_s * patience, longest_s) - min(own_s * self.patience, longest_s)
            self.patience = patience
            self.deadline.at_s += more_s
            self.ends_s += more_s

    # ---- saying

    @property
    def address(self) -> tuple[str, int]:
        """The first bootstrap address, unless `entrance` was set to another."""
        return self.entrance or self.subject.bootstrap[0]

    @property
    def target(self) -> Any:
        """The open target, for its hooks (kill, restart, pause ...); the record's `hooks` say which are used."""
        return self.subject.target

    def connect(
        self, address: tuple[str, int] | None = None, *, client_id: str | None = CLIENT_ID, timeout_s: float = 10.0
    ) -> Connection:
        """A new connection, to the first bootstrap address unless another is given, as it is reached from here."""
        where = self.reach(address or self.address)
        connection = Connection(
            where, self.recorder, self.deadline, timeout_s=timeout_s, client_id=client_id, check=self._expect_sayable
        )
        self._connections.append(connection)
        return connection

    def reach(self, address: tuple[str, int]) -> tuple[str, int]:
        """Where an advertised address can be reached from here."""
        return getattr(self.target, "addresses", AddressMap()).reach(*address)

    def connection(self, address: tuple[str, int] | None = None) -> Connection:
        """The standing connection to an address; a new one where the last was closed."""
        key = address or self.address
        if key not in self._by_address or self._by_address[key].socket.fileno() < 0:
            self._by_address[key] = self.connect(key)
        return self._by_address[key]

    def hang_up(self, addresses: Collection[tuple[str, int]]) -> None:
        """Close the standing connections to some addresses; the next request to one of them opens a new one."""
        for address in addresses:
            if address in self._by_address:
                self._by_address.pop(address).close()

    def call(
        self, request: Message, version: int | None = None, *, to: Connection | tuple[str, int] | None = None,
        timeout_s: float | None = None,
    ) -> Any:  # fmt: skip
        """Send a request and read its answer, in the highest version that both sides know unless one is given.

        `to` is a connection, or an address to which the standing connection is used. Without it a request that only the
        controller answers goes to the controller, as admin clients do: brokers of a KRaft quorum forward it, others need not.
        As they do, too, it is sent again where there is no controller yet: a target that has just started may elect one.
        """
        answer = self._call(request, version, to, timeout_s)
        until = time.monotonic() + READY_WITHIN_S * self.patience
        while to is None and _refused_by_controller(request, answer) and time.monotonic() < until:
            answer = self._call(request, version, self.controller(), timeout_s)
            if _refused_by_controller(request, answer):
                time.sleep(POLL_S)
        return answer

    def _call(
        self, request: Message, version: int | None, to: Connection | tuple[str, int] | None, timeout_s: float | None
    ) -> Any:
        version = self.version_for(request, version)
        self._expect_one_leader(request)
        least_ms = self.subject.profile.fetch_wait_ms
        if isinstance(request, FetchRequest) and request.max_wait_ms == LEAST_WAIT_MS < least_ms:
            request.max_wait_ms = least_ms
        if to is None and APIS[type(request).KEY].name in CONTROLLERS and self.subject.nodes > 1:
            to = self.controller()
        connection = to if isinstance(to, Connection) else self.connection(to)
        try:
            return connection.call(request, version, timeout_s=timeout_s)
        except Misbehaved:
            connection.close()
            raise

    def _expect_sayable(self, request: Message, version: int) -> None:
        """Skips where the target does not serve the version, or the version lacks a field that the request needs.

        Before the ranges are known, and of ApiVersions, anything may be sent.
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

    def _expect_one_leader(self, request: Message) -> None:
        """Skips where one request would ask one broker about partitions that several lead."""
        asked: list[Any] = [*request.topic_data] if isinstance(request, ProduceRequest) else []
        if isinstance(request, FetchRequest | ListOffsetsRequest):
            asked = [*request.topics]
        names = [one.topic if hasattr(one, "topic") else one.name for one in asked for _ in _partitions(one)]
        if any(names.count(name) > 1 for name in self.scattered):
            self.skip(
                "needs partitions that one broker leads; the target places them otherwise than it is asked to (TOP-07)"
            )

    def version_for(self, request: Message | type[Message], version: int | None = None) -> int:
        """The version given, if the target advertises it; else the highest that both sides know and the target serves.

        Skips when there is none.
        """
        table = request if isinstance(request, type) else type(request)
        lowest, highest = self.versions_of(table)
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
        """The range that the target advertises and this suite knows. Skips when there is none."""
        name = APIS[request.KEY].name
        if request.KEY not in self.subject.api_versions:
            self.skip(f"the target does not advertise {name}", Lack.API)
        lowest, highest = self.subject.api_versions[request.KEY]
        lowest, highest = max(lowest, request.VERSIONS.lowest), min(highest, request.VERSIONS.highest)
        if lowest > highest:
            self.skip(f"the target serves no version of {name} that this suite knows", Lack.API)
        return lowest, highest

    def versions_among(self, request: type[Message], *wanted: int) -> list[int]:
        """Those of the versions that the target serves, and the one that helpers use."""
        lowest, highest = self.versions_of(request)
        return sorted({one for one in wanted if lowest <= one <= highest} | {self.version_for(request)})

    def is_kafka(self, since: str, until: str = "") -> bool:
        """Whether the behaviour asked for is that of Kafka `since` or later (and, where given, up to `until`)."""
        self.changes.add(since)
        key = version_key(self.release)
        return key >= version_key(since) and (not until or key[: len(version_key(until))] <= version_key(until))

    # ---- having: topics

    @built_on("BAS-02")
    def topic(
        self, partitions: int = 1, *, configs: Mapping[str, str] | None = None, replication_factor: int = 1,
        name: str = "",
    ) -> Topic:  # fmt: skip
        """A new topic with a name of its own, once every partition has a leader; unreplicated ones share a leader.

        Unless `configs` says otherwise it keeps its records for ever (retention.ms=-1): targets that the suite starts
        look for expired ones several times a second, and records with old timestamps would vanish under the test. Where the
        broker's defaults are not Kafka's, it is given Kafka's.
        """
        profile = self.subject.profile
        if profile.topics_by != "CreateTopics":
            return self._found_topic(partitions, configs or {}, replication_factor, name)
        if configs and not profile.topic_configs:
            self.skip(f"needs a topic with {', '.join(configs)}; the target makes none with configurations", Lack.API)
        given = {"retention.ms": "-1"} | profile.pinned | dict(configs or {}) if profile.topic_configs else {}
        placed = self._on_one_broker(partitions) if partitions > 1 and replication_factor == 1 else None
        for _ in range(1 if name or not placed else PLACEMENTS):
            topic_name = name or self.unused_name()
            made = self._made(
                topic_name, partitions, configs=given, replication_factor=replication_factor, placed=placed
            )
            if made.error_code != ErrorCode.NONE:
                raise Failed(f"a topic could not be made: {error_name(made.error_code)} {_message(made)}")
            topic = self.await_topic(topic_name) if partitions == 1 else self._await_partitions(topic_name, partitions)
            if self.subject.nodes == 1 or replication_factor > 1 or partitions == 1 or self._one_leads(topic_name):
                break
        else:
            self.scattered.add(topic.name)
        return topic

    def _one_leads(self, name: str) -> bool:
        """Whether one broker leads all partitions of a topic."""
        return len({partition.leader_id for partition in self.describe_topic(name).partitions}) == 1

    def _made(self, name: str, partitions: int, *, replication_factor: int, **options: Any) -> Any:
        """The result of CreateTopics; a broker that a busy machine has fenced for a moment is waited for."""

        def made() -> Any:
            found = self.create_topic(name, partitions, replication_factor=replication_factor, **options)
            fenced = replication_factor == 1 and found.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            return None if fenced else found

        return self.eventually(made, f"CreateTopics finds one broker for {name}")

    def _found_topic(self, partitions: int, configs: Mapping[str, str], replication_factor: int, name: str) -> Topic:
        """A topic of a target without CreateTopics: made by asking for it, or one of those that were given."""
        source, most = self.subject.profile.topics_by, self.subject.profile.default_partitions
        if source == "none" and CreateTopicsRequest.KEY in self.subject.api_versions:
            raise Failed(f"no topic can be made: {self.subject.profile.unknown.get('topics', 'no way works')}")
        if configs or replication_factor > 1 or (name and source == "--topics"):
            self.skip(
                "needs CreateTopics, for a topic with a configuration, replication factor or name of its own", Lack.API
            )
        if most and partitions > most:
            self.skip(
                f"needs a topic of {partitions} partitions; without CreateTopics the target gives it {most}", Lack.API
            )
        if source == "auto-creation":
            made = name or self.unused_name()
            self.metadata([MetadataRequest.MetadataRequestTopic(name=made)], auto_create=True)
            return self.await_topic(made, partitions)
        with self.subject.lock:
            given = self.subject.profile.given_topics
            for one in [*given]:
                if self.await_topic(one).partitions < partitions:
                    continue  # it is left for those that need fewer
                given.remove(one)
                topic = self.await_topic(one, partitions)
                if all(self.end_offset(topic, n) == 0 for n in range(topic.partitions)):
                    return topic
        size = f" of {partitions} partitions" if partitions > 1 else ""
        self.skip(f"needs CreateTopics, auto-creation, or another empty topic{size} in --topics", Lack.API)

    def _on_one_broker(self, partitions: int) -> list[list[int]] | None:
        """Replicas for partitions that one request shall reach; None where there is one broker, or no choice of them."""
        brokers = self.metadata([]).brokers if self.subject.nodes > 1 and self.subject.profile.places else []
        return [[brokers[0].node_id]] * partitions if brokers else None

    def unused_name(self, stem: str = "") -> str:
        """A topic, group or transactional id that was never used."""
        return f"tg-{(stem or self.requirement.id).lower()}-{uuid.uuid4().hex[:10]}"

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None, replication_factor: int = 1,
        version: int | None = None, validate_only: bool = False, placed: Sequence[Sequence[int]] | None = None,
    ) -> Any:  # fmt: skip
        """CreateTopics for one topic; gives its result, whatever it is. `placed` are the replicas of each partition."""
        topic = new_topic(name, partitions, configs=configs, replication_factor=replication_factor, placed=placed)
        request = CreateTopicsRequest(
            topics=[topic],
            timeout_ms=10_000,
            validate_only=validate_only,
        )
        self.subject.topics.append(name)
        return only(self.call(request, version).topics, f"result for topic {name}")

    def await_topic(self, name: str, partitions: int = 1, *, within_s: float = READY_WITHIN_S) -> Topic:
        """Wait until each partition of the topic has a leader that answers for it."""

        def led() -> Topic | None:
            found = self.describe_topic(name)
            led = [p for p in found.partitions if p.error_code == ErrorCode.NONE and p.leader_id >= 0]
            if found.error_code == ErrorCode.NONE and len(led) >= partitions:
                return Topic(name, found.topic_id, len(found.partitions))
            return None

        topic = self.eventually(led, f"topic {name} has leaders for its {partitions} partitions", within_s=within_s)
        self._expect_own_id(topic)
        for partition in range(topic.partitions):  # the metadata is ahead of the leader's own log for a moment
            self.eventually(
                lambda partition=partition: self._error_of_leader(topic, partition) not in RETRIABLE,
                f"the leader of {name}-{partition} serves it",
                within_s=within_s,
            )
        return topic

    def _error_of_leader(self, topic: Topic, partition: int) -> int:
        """How a partition's leader answers for it, by ListOffsets or else by Fetch."""
        if ListOffsetsRequest.KEY in self.subject.api_versions:
            return self.offset_of(topic, EARLIEST, partition=partition).error_code
        if FetchRequest.KEY in self.subject.api_versions:
            return self.fetch(topic, 0, partition=partition).error_code
        return ErrorCode.NONE

    def restart_node(self, node: int) -> None:
        """Restart a node (needs the hook `restart`), after hanging up."""
        for connection in self._by_address.values():
            connection.close()
        self.target.restart(node)

    @built_on("TOP-13")
    def _await_partitions(self, name: str, partitions: int) -> Topic:
        return self.await_topic(name, partitions)

    @built_on("MET-09")
    def _expect_own_id(self, topic: Topic) -> None:
        """No other topic of this run has the id; targets may have none."""
        if topic.id == NO_UUID:
            return
        with self.subject.lock:
            owner = self.subject.topic_ids.setdefault(topic.id, topic.name)
        if owner != topic.name:
            raise Failed(f"topics {owner} and {topic.name} have the same id {topic.id}")

    @built_on("BAS-02")
    def describe_topic(self, name: str) -> Any:
        """The topic's entry of Metadata; auto-creation is off. That others are reported too is the business of MET."""
        version = self.version_for(MetadataRequest)
        topics = self.metadata([MetadataRequest.MetadataRequestTopic(name=name)], version=version).topics
        found = only([one for one in topics if one.name == name], f"entry for topic {name}")
        numbers = [each.partition_index for each in found.partitions]
        if len({*numbers}) < len(numbers):
            raise Failed(f"Metadata lists partitions of {name} twice: {sorted(numbers)}")
        return found

    @built_on("BAS-01")
    def metadata(
        self, topics: list[MetadataRequest.MetadataRequestTopic] | None, *, version: int | None = None,
        auto_create: bool = False, to: Connection | tuple[str, int] | None = None,
    ) -> Any:  # fmt: skip
        """A Metadata response; no topics (None) asks for all. Versions below 4 always allow auto-creation."""
        version = self.version_for(MetadataRequest, version)
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto_create or version < 4)
        return self.call(request, version, to=to)

    def controller(self) -> tuple[str, int]:
        """The address of the node that Metadata names as the controller; any, where it names none, or one that is hurt.

        Brokers of a KRaft cluster name one of themselves at random, which may be one that the requirement has frozen.
        """
        answer = self.metadata([])
        named = [(one.host, one.port) for one in answer.brokers if one.node_id == answer.controller_id]
        return named[0] if named and named[0] not in self.hurt else self.address

    def leader(self, topic: Topic, partition: int = 0) -> tuple[str, int]:
        """The address of the partition's leader; where no replica leads it, of another one's leader or any broker."""
        if self.subject.nodes == 1:
            return self.address
        named = MetadataRequest.MetadataRequestTopic(
            name=topic.name or None, topic_id=NO_UUID if topic.name else topic.id
        )
        metadata = self.metadata([named])
        partitions = [one for found in metadata.topics for one in found.partitions]
        partitions.sort(key=lambda one: one.partition_index != partition)
        brokers = {one.node_id: (one.host, one.port) for one in metadata.brokers}
        leading = [brokers[one.leader_id] for one in partitions if one.leader_id in brokers]
        return leading[0] if leading else self.address

    def id_of(self, topic: Topic) -> UUID:
        """The topic's id. Skips where the target reports none (before Metadata v10 no topic has one)."""
        if topic.id == NO_UUID:
            self.skip("needs topic ids, and the target reports none", Lack.API)
        return topic.id

    def leader_epoch(self, topic: Topic, partition: int = 0) -> int:
        """The partition's leader epoch, as Metadata says. Skips below Metadata v7, which brought it."""
        if (version := self.version_for(MetadataRequest)) < METADATA_WITH_EPOCHS:
            self.skip(f"needs leader epochs, which Metadata v{version} does not have", Lack.API)
        found = self.describe_topic(topic.name)
        return AnswerParts({p.partition_index: p.leader_epoch for p in found.partitions})[partition]

    @built_on("ACK-17")
    def restart_leader(self, topic: Topic, partition: int = 0) -> int:
        """Restart the node that leads a partition (needs the hook `restart`), and wait until the partition is led in a
        later epoch; gives that epoch."""
        if not self.is_kafka("3.3"):
            self.skip("with ZooKeeper the restart of a broker that is alone begins no later leader epoch")
        before = AnswerParts({p.partition_index: p for p in self.describe_topic(topic.name).partitions})[partition]
        self.restart_node(before.leader_id)

        def led() -> int | None:
            epoch = self.leader_epoch(topic, partition)
            return epoch if epoch > before.leader_epoch else None

        self.await_topic(topic.name, topic.partitions, within_s=RESTARTED_WITHIN_S)
        try:
            return self.eventually(led, f"{topic.name}-{partition} is led in an epoch above {before.leader_epoch}")
        except NoAnswer:
            self.skip(f"needs a later leader epoch after a restart; the target stays in epoch {before.leader_epoch}")

    def internal_topic(self, name: str) -> Topic:
        """A topic that only the broker writes to. Skips where the target has none."""
        try:
            return self.await_topic(name)
        except NoAnswer:
            self.skip(f"needs the internal topic {name}, which the target does not have")

    def kill_leader(self, topic: Topic, *, dead_s: float) -> None:
        """Kill the node that leads partition 0 (needs the hooks `kill` and `restart`), start it again after so many seconds,
        and wait until every partition is led."""
        leader = AnswerParts({p.partition_index: p for p in self.describe_topic(topic.name).partitions})[0].leader_id
        for connection in self._by_address.values():
            connection.close()
        self.target.kill(leader)
        time.sleep(dead_s)
        self.target.restart(leader)
        self.await_topic(topic.name, topic.partitions, within_s=RESTARTED_WITHIN_S)

    @built_on("BAS-06")
    def coordinator(self, key: str, key_type: int = GROUP) -> tuple[str, int]:
        """The address of the coordinator of a group or a transactional id, once it is there."""

        def found() -> tuple[str, int] | None:
            version = self.version_for(FindCoordinatorRequest)
            if version >= 4:
                answer = self.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), version)
                answer = only(answer.coordinators, f"coordinator of {key}")
            else:
                answer = self.call(FindCoordinatorRequest(key=key, key_type=key_type), version)
            return (answer.host, answer.port) if answer.error_code == ErrorCode.NONE else None

        return self.eventually(found, f"{key} has a coordinator")

    # ---- having: records

    @built_on("BAS-03")
    def produce(
        self, topic: Topic, records: bytes | None, *, partition: int = 0, acks: int = -1, version: int | None = None,
        timeout_ms: int = 10_000, transactional_id: str | None = None, to: Connection | None = None,
    ) -> Any:  # fmt: skip
        """Produce to one partition; gives the partition's result, whatever it is."""
        version = self.version_for(ProduceRequest, version)
        if version < FIRST_WITH_BATCHES and records and records[MAGIC_AT] == NEWEST_FORMAT:
            self.skip("needs record batches (message format 2), which the target's Produce does not carry", Lack.API)
        request = produce_request(
            {(topic, partition): records}, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
        )
        answer = self.call(request, version, to=to or self.connection(self.leader(topic, partition)))
        found = only(answer.responses, "topic in the answer")
        return _asked_for(topic, partition, found, found.name, found.partition_responses)

    @built_on("BAS-03")
    def append(self, topic: Topic, records: bytes, *, partition: int = 0, **options: Any) -> int:
        """Produce what must be accepted, in the target's newest message format; gives the base offset."""
        newest = self.subject.profile.newest_format
        if newest < NEWEST_FORMAT:
            records = self._in_older_format(records, newest)
        result = self.produce(topic, records, partition=partition, **options)
        if result.error_code != ErrorCode.NONE:
            raise Failed(f"a valid batch was refused with {error_name(result.error_code)} {_message(result)}")
        return result.base_offset

    def _in_older_format(self, data: bytes, magic: int) -> bytes:
        """Plain records in a format that knows neither producers nor transactions nor headers."""
        if stored.is_message_set(data):
            return data
        if any(one.producer_id >= 0 for one in stored.batches(data)) or any(r.headers for r in stored.records(data)):
            self.skip(f"needs record batches (message format 2); the target's newest format is {magic}", Lack.API)
        return stored.as_messages(data, magic)

    @built_on("BAS-04")
    def fetch(
        self, topic: Topic, offset: int, *, partition: int = 0, version: int | None = None, max_wait_ms: int = LEAST_WAIT_MS,
        min_bytes: int = 1, max_bytes: int = 50 << 20, partition_max_bytes: int = 50 << 20,
        isolation: int = READ_UNCOMMITTED, current_leader_epoch: int = -1, to: Connection | None = None,
    ) -> Any:  # fmt: skip
        """A sessionless fetch of one partition; gives the partition's result, whatever it is."""
        version = self.version_for(FetchRequest, version)
        request = fetch_request(
            {(topic, partition): offset}, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes, isolation=isolation, current_leader_epoch=current_leader_epoch,
        )  # fmt: skip
        answer = self.call(request, version, to=to or self.connection(self.leader(topic, partition)))
        if answer.error_code != ErrorCode.NONE:
            raise Failed(f"a fetch without a session was answered with {error_name(answer.error_code)}")
        found = only(answer.responses, "topic in the answer")
        return _asked_for(topic, partition, found, found.topic, found.partitions)

    @built_on("BAS-04")
    def log(self, topic: Topic, *, partition: int = 0, offset: int = 0, isolation: int = READ_UNCOMMITTED) -> bytes:
        """All bytes of the partition from an offset to its end, as fetched. Errors: Failed also where batches are out of order,
        or go on without an end."""
        collected = bytearray()
        while len(collected) <= LONGEST_LOG_BYTES:
            part = self.fetch(topic, offset, partition=partition, isolation=isolation)
            if part.error_code != ErrorCode.NONE:
                raise Failed(f"a fetch at offset {offset} was answered with {error_name(part.error_code)}")
            data = bytes(part.records or b"")
            if not data:
                return bytes(collected)
            if not in_order(data) or next_offset(data) <= offset:
                raise Failed(f"the batches of a fetch at offset {offset} are not in the order of their offsets")
            collected += data
            offset = next_offset(data)
        raise Failed(f"fetches of one partition give more than {LONGEST_LOG_BYTES} bytes, and the suite wrote no such")

    @built_on("BAS-05")
    def offset_of(
        self, topic: Topic, timestamp: int, *, partition: int = 0, version: int | None = None,
        isolation: int = READ_UNCOMMITTED,
    ) -> Any:  # fmt: skip
        """ListOffsets of one partition; gives the partition's result, whatever it is."""
        version = self.version_for(ListOffsetsRequest, version)
        request = list_offsets_request({(topic.name, partition): timestamp}, isolation=isolation if version >= 2 else 0)
        answer = self.call(request, version, to=self.leader(topic, partition))
        return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")

    def end_offset(self, topic: Topic, partition: int = 0, *, isolation: int = READ_UNCOMMITTED) -> int:
        """The high watermark, or the last stable offset for read_committed: by ListOffsets, or by Fetch where that one lies."""
        if self.subject.profile.ends_by_fetch:
            part = self.fetch(topic, 0, partition=partition, isolation=isolation)
            return part.last_stable_offset if isolation == READ_COMMITTED else part.high_watermark
        return self._bound(topic, LATEST, partition, isolation)

    def start_offset(self, topic: Topic, partition: int = 0) -> int:
        """The log start offset."""
        return self._bound(topic, EARLIEST, partition)

    def _bound(self, topic: Topic, timestamp: int, partition: int, isolation: int = READ_UNCOMMITTED) -> int:
        """Where a log begins or ends, by ListOffsets. Of several nodes, one may name the leader of a moment ago."""

        def asked() -> Any:
            return self.offset_of(topic, timestamp, partition=partition, isolation=isolation)

        found = asked()
        if found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self.subject.nodes > 1:
            with suppress(NoAnswer):
                found = self.eventually(
                    lambda: one if (one := asked()).error_code == ErrorCode.NONE else None,
                    f"{topic.name} has a leader that answers ListOffsets",
                )
        if found.error_code != ErrorCode.NONE:
            raise Failed(f"ListOffsets was answered with {error_name(found.error_code)}")
        return found.offset

    @built_on("BAS-13")
    def delete_records(self, topic: Topic, before: int, *, partition: int = 0) -> int:
        """Delete the records below an offset, which must succeed; gives the new log start offset."""
        answer = self.call(delete_records_request({(topic.name, partition): before}), to=self.leader(topic, partition))
        result = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
        if result.error_code != ErrorCode.NONE:
            raise Failed(f"DeleteRecords was answered with {error_name(result.error_code)}")
        known = ListOffsetsRequest.KEY in self.subject.api_versions
        start = self.start_offset(topic, partition) if known else result.low_watermark
        if start < before or result.low_watermark < before:
            failure = Failed(
                f"after DeleteRecords up to {before}, answered with {result.low_watermark}, the log starts at {start}"
            )
            moved = self.fetch(topic, start, partition=partition).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            failure.built_on = "LOF-01" if moved and start < before else ""
            raise failure
        return result.low_watermark

    @built_on("BAS-09")
    def producer_id(self, *, version: int | None = None) -> tuple[int, int]:
        """A fresh producer id and its epoch, for idempotent produce."""

        def given() -> tuple[int, int] | None:
            answer = self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), version)
            if answer.error_code in RETRIABLE:
                return None
            self.expect_error(answer.error_code, ErrorCode.NONE, what="InitProducerId")
            return answer.producer_id, answer.producer_epoch

        return self.eventually(given, "InitProducerId gives a producer id")

    @built_on("BAS-12")
    def broker_configs(self, names: Collection[str] | None, node_id: int | None = None) -> dict[str, str | None]:
        """Configurations in force on a broker (the first one unless said), by DescribeConfigs; all of them for None."""
        if node_id is None:
            brokers = self.metadata([]).brokers
            if not brokers:
                raise Failed("Metadata lists no broker")
            node_id = brokers[0].node_id
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=str(node_id),
            configuration_keys=None if names is None else list(names),
        )
        result = only(self.call(DescribeConfigsRequest(resources=[resource])).results, f"result for broker {node_id}")
        if result.error_code != ErrorCode.NONE:
            raise Failed(f"DescribeConfigs of broker {node_id} was answered with {error_name(result.error_code)}")
        return AnswerParts({config.name: config.value for config in result.configs})

    # ---- judging

    def expect(self, holds: bool, sentence: str) -> None:
        """Write down what was seen; where it does not hold, the requirement has failed."""
        if not holds:
            raise Failed(f"does not hold: {sentence}")
        self.saw(sentence)

    def expect_equal(self, what: str, seen: object, wanted: object) -> None:
        """The value is the wanted one."""
        if seen != wanted:
            raise Failed(f"{what} is {shown(seen)}, not {shown(wanted)}")
        self.saw(f"{what} is {shown(seen)}")

    def expect_error(
        self,
        seen: int,
        *accepted: ErrorCode,
        tolerated: Collection[ErrorCode] = (),
        what: str = "",
        message: object = "",
    ) -> None:
        """The error code is one of the accepted; a tolerated one passes with a note."""
        reported = f"{what}: " if what else ""
        if seen in accepted:
            self.saw(f"{reported}{error_name(seen)}")
        elif seen in tolerated:
            self.tolerate(f"{reported}{error_name(seen)} instead of {' or '.join(map(error_name, accepted))}")
        else:
            wanted = " or ".join(map(error_name, accepted))
            raise Failed(f"{reported}{error_name(seen)}{f' ({message})' if message else ''} instead of {wanted}")

    def expect_closed(self, connection: Connection, *, what: str = "the connection") -> None:
        """The target closes the connection and says nothing before."""
        said = connection.wait_closed(CLOSED_WITHIN_S)
        if said is None:
            raise Failed(f"{what} is still open after {CLOSED_WITHIN_S:g} s")
        if said:
            raise Failed(f"{what} was answered with {len(said)} bytes before it was closed: {said[:40].hex(' ')}")
        self.saw(f"{what} was closed without an answer")

    def expect_served(self, *, what: str = "another connection is served") -> None:
        """A well-formed client on a new connection gets its answer: the broker is alive."""
        self.expect(self.api_versions().error_code == ErrorCode.NONE, what)

    def api_versions(self) -> Any:
        """The answer to ApiVersions on a new connection, in the version that the target was found to answer."""
        version = self.subject.profile.asked_in
        with self.connect() as connection:
            return connection.call(NAMED if version >= FIRST_FLEXIBLE else ApiVersionsRequest(), version)

    def eventually(
        self, probe: Callable[[], T | None], what: str, *, within_s: float = 0.0, every_s: float = 0.02
    ) -> T:
        """Ask until the answer is neither None nor False. Fails when it does not come in time (15 s unless said)."""
        within_s = (within_s or READY_WITHIN_S) * self.patience
        until = time.monotonic() + within_s
        pause_s = every_s
        while True:
            found = probe()
            if found is not None and found is not False:
                return found
            if time.monotonic() + pause_s > min(until, self.deadline.at_s):
                if until > self.deadline.at_s:
                    raise DeadlinePassed(f"not before the requirement's deadline passed: {what}")
                raise NoAnswer(f"not within {within_s:g} s: {what}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.5)

    def saw(self, sentence: str) -> None:
        """Write down an observation."""
        self.seen.append(sentence)

    def tolerate(self, reason: str) -> None:
        """The requirement is met in a way that Kafka does not; it passes with this note unless something else fails."""
        self.tolerances.append(reason)
        self.saw(reason)

    def fail(self, seen: str) -> NoReturn:
        """The requirement has failed; say what was seen."""
        raise Failed(seen)

    def skip(self, reason: str, lacks: Lack = Lack.OTHER) -> NoReturn:
        """The requirement cannot be judged here; say what the target lacks."""
        raise Skipped(reason, lacks)

    def out_of_time(self, failure: Failed) -> str:
        """Why a requirement is not judged that ran out of time although the target answered; empty for other failures.

        So it is where joins take long, and where the last wait had only begun.
        """
        profile, deadline_s = self.subject.profile, self.requirement.deadline_s * self.patience
        deadline_s = min(deadline_s, max(self.requirement.deadline_s, LONGEST_S))
        if not isinstance(failure, DeadlinePassed) or self.abandoned or time.monotonic() < self.ends_s:
            return ""
        if 1 < profile.patience <= self.patience:
            return f"needs more than {deadline_s:g} s, for a join takes {profile.join_s:g} s here: {failure}"
        begun = failure.about is not None and failure.waited_s < BEGUN_S
        return (
            f"needs more than {deadline_s:g} s here, in which the target answered all but the last request"
            if begun
            else ""
        )

    def step_of(self, failure: Failed) -> str:
        """The requirement that speaks of the step that failed: API-05 where it found this version not served."""
        about = failure.about if isinstance(failure, Misbehaved) else None
        if about and about.api_key in APIS and self.subject.profile.broken(APIS[about.api_key].name, about.version):
            return "API-05"
        return failure.built_on

    @contextmanager
    def case(self, name: str, *, deadline_s: float | None = None) -> Iterator[None]:
        """One of several cases, judged by itself: a failure in one does not end the others. The worst case counts."""
        outer_seen, outer_tolerances = self.seen, self.tolerances
        outer_deadline, outer_end = self.deadline.at_s, self.ends_s
        self.seen, self.tolerances = [], []
        self.recorder.case = name
        if deadline_s is not None:
            self.deadline.at_s = min(outer_deadline, time.monotonic() + deadline_s)
        case = Case(name=name, verdict=Verdict.PASS)
        begins_late = time.monotonic() >= self.deadline.at_s
        try:
            yield
            if self.tolerances:
                case.verdict, case.reason = Verdict.TOLERATED, "; ".join(self.tolerances)
        except Failed as failure:
            late = self.out_of_time(failure)
            if begins_late and isinstance(failure, DeadlinePassed) and not self.abandoned:
                late = "the requirement's time was over before this case"
            if late:
                case.verdict, case.reason = Verdict.NOT_JUDGED, late
            else:
                case.verdict, case.reason = Verdict.FAIL, str(failure)
                self.built_on.append(self.step_of(failure))
                self.late.append(isinstance(failure, NoAnswer))
        except Skipped as skip:
            case.verdict, case.reason = Verdict.NOT_JUDGED, str(skip)
            self.lacks.append(skip.lacks)
        finally:
            case.seen = self.seen
            self.cases.append(case)
            self.seen, self.tolerances = outer_seen, outer_tolerances
            self.deadline.at_s = outer_deadline + self.ends_s - outer_end
            self.recorder.case = ""


# ---- requests


def delete_topics_request(names: Collection[str], version: int) -> DeleteTopicsRequest:
    """A DeleteTopics request by name."""
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)
    state = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(topics=[state(name=name, topic_id=NO_UUID) for name in names], timeout_ms=10_000)


def _refused_by_controller(request: Message, answer: Message) -> bool:
    """Whether this is the answer of a broker that is not the controller to what only the controller does."""
    return APIS[type(request).KEY].name in CONTROLLERS and ErrorCode.NOT_CONTROLLER in errors_in(answer)


def _is_default(value: Any, default: Any) -> bool:
    """Whether a field says nothing; a structure does where none of its fields does."""
    if isinstance(value, Message):
        return all(_is_default(getattr(value, each.name), each.default) for each in value.FIELDS)
    return value in (None, []) or value == default


# ---- words


def unsayable(message: Any, version: int) -> Iterator[str]:
    """The fields that a version does not carry, and without which the request would not ask what it is to ask."""
    for each in message.FIELDS:
        value = getattr(message, each.name)
        if version not in each.versions:
            if (each.name in ESSENTIAL or not each.ignorable) and not _is_default(value, each.default):
                yield each.name
        elif value is None and version not in each.nullable:
            yield f"{each.name} that is null"
        elif isinstance(each.element, type) and value is not None:
            for one in value if isinstance(value, list) else [value]:
                yield from unsayable(one, version)


class AnswerParts(dict[K, V]):
    """Parts of an answer by what names them. One that the answer must have and lacks is a failure, and no `KeyError`."""

    def __missing__(self, key: object) -> NoReturn:
        raise Failed(f"the answer has nothing for {shown(key)}, but for {shown(list(self))}")


def only(items: Sequence[T], what: str) -> T:
    """The only element of an answer that must have one. Fails, instead of breaking the suite, where it is otherwise."""
    if len(items) != 1:
        raise Failed(f"{len(items)} instead of one {what}")
    return items[0]


def _asked_for(topic: Topic, partition: int, reported: Any, name: str, partitions: Sequence[Any]) -> Any:
    """The only partition of an answer that must be about this one. Fails where it reports another, or none."""
    index = "partition_index" if hasattr(reported, "partitions") else "index"
    found = only(partitions, "partition in the answer")
    if (name != topic.name and reported.topic_id != topic.id) or getattr(found, index) != partition:
        seen = f"{name or reported.topic_id}, partition {getattr(found, index)}"
        raise Failed(f"the answer about {topic.name or topic.id}, partition {partition}, is about {seen}")
    return found


def number(text: str | None, what: str) -> int:
    """A number that an answer reports as text. Fails where it is none."""
    try:
        return int(text or "")
    except ValueError as error:
        raise Failed(f"{what} is {shown(text)}, no number") from error


def error_name(code: int) -> str:
    """`CORRUPT_MESSAGE(2)`, or the bare number of a code that Kafka does not have."""
    try:
        return f"{ErrorCode(code).name}({int(code)})"
    except ValueError:
        return f"error {code}"


def shown(value: object) -> str:
    """A value in a sentence: errors by name, bytes in hex, the rest as Python writes it, not too long."""
    if isinstance(value, ErrorCode):
        return error_name(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes {bytes(value[:32]).hex(' ')}"
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _partitions(topic: Any) -> Sequence[Any]:
    """The partitions of one topic in a Produce, Fetch or ListOffsets request."""
    return topic.partition_data if hasattr(topic, "partition_data") else topic.partitions


def _message(result: Any) -> str:
    return getattr(result, "error_message", None) or ""
