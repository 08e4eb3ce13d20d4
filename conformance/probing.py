"""Probes a target, capability by capability, and records the results (`TargetProfile`).

A probe that fails leaves its capability unknown, with the reason, and the next probe runs. A target that ends during a probe
is restarted.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from conformance.answers import AnswerParts, error_name, errors_in, only
from conformance.batches import batch, message_set, next_offset
from conformance.broker import Broker
from conformance.classic_groups import Group
from conformance.levels import MUST
from conformance.minimal import minimal_request
from conformance.observations import Skipped
from conformance.requirement import Requirement
from conformance.results import printable
from conformance.subject import Subject
from conformance.target_profile import (
    FEATURES,
    MEMBER_SESSION_MS,
    SLOW_JOIN_S,
    SeenNode,
    TargetProfile,
    TopicSource,
)
from conformance.wire import Failed, Misbehaved, NoAnswer, Unreachable
from linearizability.client.requests import Topic, fetch_request
from linearizability.targets.addresses import UNREACHABLE
from linearizability.targets.wire import FIRST_FLEXIBLE, NAMED, NEWER
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_UUID

T = TypeVar("T")

PROBE_DEADLINE_S = 90.0
ANSWER_WITHIN_S = 5.0
"""How long one version of one API may take to answer."""
SPEAKS_WITHIN_S = 30.0
REACHED_WITHIN_S = 3.0
PLACED_WITHIN_S = 5.0
WAITS_MS = (0, 100, 500, 1_000)
"""The values of max_wait_ms to try until a fetch returns records."""
FORMAT_VERSIONS = {2: 3, 1: 2, 0: 0}
"""Message format -> the lowest version of Produce that carries it; formats 0 and 1 need exactly that one."""
BEFORE_TOPIC = ("Metadata", "CreateTopics")
WITH_TOPIC = (
    "ListOffsets", "Produce", "Fetch", "FindCoordinator", "InitProducerId", "DescribeConfigs", "OffsetCommit", "OffsetFetch",
    "DeleteTopics", "DeleteRecords", "OffsetForLeaderEpoch",
    "DescribeGroups", "ListGroups",
)  # fmt: skip
"""The APIs that helpers use. The probe finds their highest version with a readable response; API-05 judges all others."""
PROBED_SESSION_MS = 6_000
REPORTED_WITHIN_S = 3.0
"""How long the probe waits until a member learns of a rebalance."""
SHORT_SESSION_MS = 10_000
"""The members' session timeout where the duration of joins grows with the session timeout."""
GROWS = 1.4
"""Joins grow with the session timeout if SHORT_SESSION_MS, which is 5/3 of PROBED_SESSION_MS, makes them longer by this
factor."""
GROUP_APIS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator")
"""The requests of a classic member. The probe tests them as a real member, because an unknown one gets only errors."""
GROUP_ATTEMPTS = 30
NO_TOPIC = Topic("tidegauge-probe", NO_UUID, 0)

RECORD = Requirement(
    id="BAS-00", level=MUST, sentence="The target is probed.", source="conformance", deadline_s=PROBE_DEADLINE_S
)


class Gone(Unreachable):
    """The target has ended and was not brought back: nothing more can be probed."""


def probe(subject: Subject, revive: Callable[[], bool], given_topics: list[str] | None = None) -> TargetProfile:
    """Probe the target and return its profile. The subject has it from the start, so that later probes use earlier results.

    `revive` restarts a target that has ended, and returns whether it answers. Errors: Unreachable where the target accepts no
    connection, or none any more.
    """
    profile = subject.profile = TargetProfile(given_topics=given_topics or [])
    prober = _Prober(subject, profile, revive)
    prober.attempt("ApiVersions", prober.ranges)
    prober.attempt("features", prober.features)
    for name in BEFORE_TOPIC:
        prober.versions(name, NO_TOPIC)
    prober.attempt("Metadata", prober.nodes)
    topic = prober.attempt("topics", prober.topic)
    if topic:
        for name in WITH_TOPIC:
            prober.versions(name, topic)
        prober.attempt("replicas", prober.placement)
        prober.attempt("message formats", lambda: prober.formats(topic))
        prober.attempt("fetch", lambda: prober.retention(topic))
        prober.attempt("ends of logs", prober.ends)
    prober.attempt("configurations", prober.configs)
    prober.attempt("groups", prober.membership)
    return profile


def look_again(subject: Subject, known: TargetProfile) -> None:
    """Update the profile after another start of the same target: probe only version ranges, nodes and configurations, which
    the start may have changed.

    Errors: Unreachable as for `probe`.
    """
    profile = subject.profile = known.model_copy(deep=True)
    prober = _Prober(subject, profile, lambda: True)
    prober.attempt("ApiVersions", prober.ranges)
    prober.attempt("Metadata", prober.nodes)
    prober.attempt("configurations", prober.configs)


class _Prober:
    """The probes of one target."""

    def __init__(self, subject: Subject, profile: TargetProfile, revive: Callable[[], bool]) -> None:
        self.subject = subject
        self.profile = profile
        self.revive = revive

    def attempt(self, capability: str, ask: Callable[[], T]) -> T | None:
        """The result of a probe. Where it fails, records the capability as unknown and returns None."""
        try:
            return ask()
        except Gone:
            raise
        except Unreachable:
            if capability == "ApiVersions":
                raise
            self.profile.unknown[capability] = "the target takes no connection any more"
        except (Failed, Skipped) as error:
            self.profile.unknown[capability] = printable(str(error))
        self.bring_back()
        return None

    def bring_back(self) -> None:
        """Restart a target that has ended. Errors: Gone where it takes no connection then."""
        if not self.revive() and not self._takes_connections():
            raise Gone("it takes no connection any more")

    def broker(self) -> Broker:
        """A view of the target with its own deadline."""
        return Broker(self.subject, RECORD)

    def ranges(self) -> None:
        """Record the advertised version ranges, by ApiVersions v0, or a newer one where a broker supports only that.

        Errors: the failure in the first version that was tried.
        """
        failure: Failed | None = None
        first = self.profile.asked_in
        for version in dict.fromkeys((first, 0, *NEWER)):
            self.profile.asked_in = version
            if failure and not self._takes_connections():
                self.bring_back()
            try:
                with self.broker() as broker:
                    answer = broker.eventually(
                        lambda: _api_versions(broker), f"ApiVersions v{version} is answered", within_s=SPEAKS_WITHIN_S
                    )
                break
            except Failed as error:
                failure = failure or error
                if isinstance(error, NoAnswer) and not version:  # v0 had its full wait: try no other version
                    raise
        else:
            self.profile.asked_in = first
            raise failure or Failed("ApiVersions is not answered")
        served = {key: both for key, both in answer.items() if both[0] <= both[1]}
        self.subject.api_versions = AnswerParts(served)  # a range of 0 to -1 means an unserved API; API-04 judges that
        self.profile.advertised = {
            APIS[key].name if key in APIS else str(key): both for key, both in sorted(answer.items())
        }

    def features(self) -> None:
        """Record the API versions of features that the target supports and has not finalized, as after an upgrade."""
        if self.subject.api_versions.get(ApiVersionsRequest.KEY, (0, 0))[1] < FIRST_FLEXIBLE:
            return
        with self.broker() as broker:
            answer = broker.call(NAMED)  # v3 leaves out features that may be switched off
        known = {one.name for one in answer.supported_features}
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        for feature, (needed, versions) in FEATURES.items():
            if feature in known and levels.get(feature, 0) < needed:
                self.profile.switched_off |= versions

    def _takes_connections(self) -> bool:
        with self.broker() as broker, suppress(Unreachable):
            broker.connect(timeout_s=REACHED_WITHIN_S)
            return True
        return False

    def versions(self, name: str, topic: Topic) -> None:
        """Find the highest version of an API with a readable response, and record the versions above it as unserved."""
        request = next(api.request for api in APIS.values() if api.name == name)
        with self.broker() as broker:
            try:
                lowest, highest = broker.versions_of(request)
            except Skipped:
                return
            for version in range(highest, lowest - 1, -1):
                seen = self._unanswered(broker, name, version, topic)
                if not seen:
                    return
                self.profile.unserved.setdefault(name, {})[version] = printable(seen)
                self.bring_back()

    def _unanswered(self, broker: Broker, name: str, version: int, topic: Topic) -> str:
        """What came instead of a response in this version; empty where it is readable and not UNSUPPORTED_VERSION."""
        request = minimal_request(broker, name, version, topic)
        try:
            with broker.connect(timeout_s=ANSWER_WITHIN_S) as connection:
                answer = connection.call(request, version)
        except Misbehaved as error:
            return str(error)
        except Skipped:  # the version cannot carry the request: nothing was sent
            return ""
        refused = ErrorCode.UNSUPPORTED_VERSION in errors_in(answer)
        return error_name(ErrorCode.UNSUPPORTED_VERSION) if refused else ""

    def nodes(self) -> None:
        """Record the brokers that Metadata lists, whether they can be reached, and the controller."""
        with self.broker() as broker:
            answer = broker.eventually(lambda: _registered(broker), "Metadata lists a broker", within_s=SPEAKS_WITHIN_S)
        self.profile.controller_id = answer.controller_id
        self.profile.nodes = [
            SeenNode(
                id=n.node_id,
                host=printable(n.host),
                port=n.port,
                unreachable=_unreachable(broker, n.node_id, (n.host, n.port)),
            )
            for n in sorted(answer.brokers, key=lambda node: node.node_id)
        ]
        self.subject.nodes = len(self.profile.nodes)
        self.subject.cluster_id = printable(answer.cluster_id or "")

    def topic(self) -> Topic:
        """Create a topic in the first way that works. Each way is tried twice, because without topics little can be judged.

        Errors: the failure of the first way.
        """
        ways: tuple[tuple[TopicSource, bool], ...] = (
            ("CreateTopics", True), ("CreateTopics", False), ("auto-creation", False), ("--topics", False),
        )  # fmt: skip
        failure: Exception | None = None
        for way, configs in ways * 2:
            self.profile.topics_by, self.profile.topic_configs = way, configs
            with self.broker() as broker:
                try:
                    topic = broker.topic()
                except (Failed, Skipped) as error:
                    failure = failure or error
                    continue
            self.profile.default_partitions = topic.partitions if way == "auto-creation" else 0
            self.profile.topic_ids = topic.id != NO_UUID
            return topic
        self.profile.topics_by, self.profile.topic_configs = "none", False
        raise failure or Failed("there is no way to make a topic")

    def placement(self) -> None:
        """Record whether CreateTopics follows a replica assignment, where there are several brokers."""
        if self.subject.nodes == 1 or self.profile.topics_by != "CreateTopics":
            return
        with self.broker() as broker:
            nodes = [one.node_id for one in broker.metadata([]).brokers]
            if not nodes:
                raise Failed("Metadata lists no broker")
            place, name = nodes[-1:], broker.unused_name()
            made = broker.create_topic(name, placed=[place, place])

            def placed() -> bool:
                return [one.replica_nodes for one in broker.describe_topic(name).partitions] == [place, place]

            self.profile.places = False
            if made.error_code == ErrorCode.NONE:
                broker.eventually(placed, f"both partitions of {name} are on node {place[0]}", within_s=PLACED_WITHIN_S)
                self.profile.places = True

    def formats(self, topic: Topic) -> None:
        """Record the message formats that Produce accepts."""
        self.profile.formats = []
        for magic, version in FORMAT_VERSIONS.items():
            with self.broker() as broker, suppress(Failed, Skipped):
                data = batch(b"probe") if magic == 2 else message_set(b"probe", magic)
                asked = broker.version_for(ProduceRequest, None if magic == 2 else version)
                if asked < version:
                    continue
                if broker.produce(topic, data, version=asked).error_code == ErrorCode.NONE:
                    self.profile.formats.append(magic)
            self.bring_back()

    def retention(self, topic: Topic) -> None:
        """Record whether fetches return the records of a topic without a limit of age, of which RET-03 speaks, or only those of
        another one."""
        try:
            self.fetch_wait(topic)
        except Failed:
            if not self.profile.topic_configs:
                raise
            self.profile.keeps_unlimited = False
            try:
                with self.broker() as broker:
                    other = broker.topic()
                    broker.append(other, batch(b"probe"))
                self.fetch_wait(other)
            except (Failed, Skipped):
                self.profile.keeps_unlimited = True
                raise

    def fetch_wait(self, topic: Topic) -> None:
        """Record the least max_wait_ms with which a fetch returns existing records."""
        for wait_ms in WAITS_MS:
            with self.broker() as broker, suppress(Failed):
                request = fetch_request({(topic, 0): 0}, max_wait_ms=wait_ms)
                answer = broker.call(request, to=broker.leader(topic))
                part = only(only(answer.responses, "topic").partitions, "partition")
                if part.error_code == ErrorCode.NONE and next_offset(bytes(part.records or b"")):
                    self.profile.fetch_wait_ms = wait_ms
                    return
        raise Failed("no fetch returns the record that was written")

    def ends(self) -> None:
        """Record whether log ends must come from Fetch: where ListOffsets is missing or wrong, and Fetch is right."""
        with self.broker() as broker:
            topic = broker.topic()
            end = broker.append(topic, batch(b"one", b"two")) + 2
            if ListOffsetsRequest.KEY in self.subject.api_versions and broker.end_offset(topic) != end:
                self.profile.ends_by_fetch = broker.fetch(topic, 0).high_watermark == end

    def configs(self) -> None:
        """Record the configurations that a broker describes."""
        with self.broker() as broker:
            self.profile.configs = broker.broker_configs(None)
        partitions = self.profile.configs.get("num.partitions") or ""
        if partitions.isdigit() and not self.profile.default_partitions:
            self.profile.default_partitions = int(partitions)

    def membership(self) -> None:
        """Record a member's experience: versions without a readable response, whether it needs a member id first, and how
        long joins take."""
        with self.broker() as broker:
            try:
                Group(broker)
            except NoAnswer:
                self.profile.knows_unused_groups = False
        for _ in range(GROUP_ATTEMPTS):
            with self.broker() as broker:
                try:
                    self.profile.session_ms = MEMBER_SESSION_MS
                    waited_s = self._one_generation(broker, PROBED_SESSION_MS)
                    if waited_s > SLOW_JOIN_S and self._one_generation(broker, SHORT_SESSION_MS) > GROWS * waited_s:
                        self.profile.session_ms = SHORT_SESSION_MS
                    return
                except Unreachable:  # nothing was sent
                    raise
                except Misbehaved as error:
                    last = broker.recorder.exchanges[-1]
                    name = APIS[last.api_key].name if last.api_key in APIS else ""
                    if name not in GROUP_APIS or last.outcome == "answered":
                        raise
                    seen = last.outcome if isinstance(error, NoAnswer) else str(error)
                    self.profile.unserved.setdefault(name, {})[last.version] = printable(seen)
            self.bring_back()
        raise Failed(f"no member completed its first generation in {GROUP_ATTEMPTS} attempts")

    def _one_generation(self, broker: Broker, session_ms: int) -> float:
        """Join, synchronise, send a heartbeat, let a second member join, and leave. Returns the seconds of the slower join."""
        group = Group(broker)
        member, newcomer = (
            group.member(session_timeout_ms=session_ms, rebalance_timeout_ms=session_ms) for _ in range(2)
        )
        began = time.monotonic()
        answer = member.ask_to_join()
        if answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT and session_ms < MEMBER_SESSION_MS:
            return self._one_generation(broker, MEMBER_SESSION_MS)
        self.profile.admits_at_once = answer.error_code == ErrorCode.NONE
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            began = time.monotonic()
            member.begin_join()
            member.expect_joined()
        else:
            member.expect(answer.error_code, "JoinGroup")
        self.profile.join_s = round(time.monotonic() - began, 2)
        group.synchronise([member])
        member.heartbeat()
        with suppress(Failed):
            newcomer.identify()
            began = time.monotonic()
            newcomer.begin_join()
            broker.eventually(
                lambda: group.rebalances(member), "the first member joins again", within_s=REPORTED_WITHIN_S
            )
            member.begin_join()
            newcomer.expect_joined()
            self.profile.join_s = max(self.profile.join_s, round(time.monotonic() - began, 2))
            member.expect_joined()
        member.leave()
        return self.profile.join_s


def _api_versions(broker: Broker) -> dict[int, tuple[int, int]] | None:
    try:
        answer = broker.api_versions()
    except Unreachable:
        return None
    if broker.subject.profile.asked_in and answer.error_code != ErrorCode.NONE:
        raise Failed(f"ApiVersions: {error_name(answer.error_code)}")
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys} or None


def _registered(broker: Broker) -> Any:
    answer = broker.metadata([])
    return answer if answer.brokers else None


def _unreachable(broker: Broker, node: int, advertised: tuple[str, int]) -> str:
    """Why a node cannot be reached from this machine: the target's own reason, else the error of a connection attempt."""
    known = getattr(broker.target, "unreachable", {}).get(node)
    if known:
        return known
    try:
        socket.create_connection(broker.reach(advertised), REACHED_WITHIN_S).close()
    except UNREACHABLE as error:
        return str(error)
    return ""
