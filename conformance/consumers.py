"""Members of KIP-848 consumer groups: their heartbeats carry the subscription, and the responses their assignment.

    one, other = Consumer(broker, group, [topic]), Consumer(broker, group, [topic])
    settle(one, other)              # send heartbeats until each partition of their topics is assigned

A consumer behaves as clients do: it revokes partitions on request, and reports that with its next heartbeat. It holds its
last assignment and the partitions whose revocation it has not yet reported. No two consumers may hold one partition.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, TypedDict, Unpack

from conformance.answers import error_name, number, only
from conformance.broker import RETRIABLE, Broker
from conformance.classic_groups import Group
from conformance.results import Lack
from conformance.steps import built_on
from conformance.wire import CLIENT_ID, Failed, Misbehaved
from linearizability.client.group_member import (
    JOINING,
    LEAVING,
    Owned,
    assigned_partitions,
    owned_partitions,
)
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

REBALANCE_MS = 60_000
SESSION, SESSION_MS = "group.consumer.session.timeout.ms", 45_000
LEAST_SESSION_S = 1.0
"""The shortest session timeout that excuses a slow suite: a member fenced sooner is the target's failure."""
STABLE = "Stable"
STATES = {"Empty", "Assigning", "Reconciling", STABLE, "Dead"}
CHOSEN_BY_CLIENT = 1
"""The first version of ConsumerGroupHeartbeat in which a member generates its own member id (KIP-1082)."""
BEAT_S = 0.05
"""The heartbeat interval of consumers that wait for something: shorter than any client's, to lose no time."""
SETTLED_WITHIN_S = 30.0
UNCHANGED_S = 2.5
"""An assignment that is unchanged for so long counts as settled, where the target does not describe groups: Kafka computes a
new assignment at most every second."""
HEARTBEAT, DESCRIBE = {"ConsumerGroupHeartbeat": 0}, {"ConsumerGroupHeartbeat": 0, "ConsumerGroupDescribe": 0}
REGEX = {"ConsumerGroupHeartbeat": 1}


def unused_group(broker: Broker) -> str:
    """An unused group id, whose coordinator answers."""
    return Group(broker, is_classic=False).name


def partitions_of(*topics: Topic) -> set[Owned]:
    """All partitions of these topics."""
    return {(topic.id, partition) for topic in topics for partition in range(topic.partitions)}


class HeartbeatFields(TypedDict, total=False):
    """The optional fields of a consumer's full heartbeats."""

    regex: str | None
    """A regular expression for the subscribed topics."""
    instance_id: str | None
    rack_id: str | None
    assignor: str | None
    rebalance_timeout_ms: int


class Consumer:
    """A member of a group, also before it has joined. Its fields hold the values of its last responses."""

    def __init__(
        self,
        broker: Broker,
        group: str,
        topics: Collection[Topic | str] = (),
        *,
        id: str | None = None,
        version: int | None = None,
        **fields: Unpack[HeartbeatFields],
    ) -> None:
        if not broker.subject.profile.topic_ids:
            broker.skip("needs topic ids, by which partitions are assigned, and Metadata reports none", Lack.API)
        self.broker, self.group = broker, group
        self.topics = [topic if isinstance(topic, str) else topic.name for topic in topics]
        self.regex, self.instance_id = fields.get("regex"), fields.get("instance_id")
        self.rack_id, self.assignor = fields.get("rack_id"), fields.get("assignor")
        self.rebalance_timeout_ms = fields.get("rebalance_timeout_ms", REBALANCE_MS)
        self.version = broker.version_for(ConsumerGroupHeartbeatRequest, version)
        self.id = (str(uuid.uuid4()) if self.version >= CHOSEN_BY_CLIENT else "") if id is None else id
        self.epoch = JOINING
        self.beaten_s = time.monotonic()
        """When the member last began a heartbeat."""
        self.assigned: set[Owned] = set()
        self.reported: set[Owned] = set()
        """The partitions that the member last reported as owned."""
        self.address = broker.coordinator(group)

    def _session_s(self) -> float:
        """The session timeout, in seconds."""
        held = self.broker.requirement.needs.configs.get(SESSION) or self.broker.subject.profile.configs.get(SESSION)
        return (number(held, SESSION) if held else SESSION_MS) / 1000

    @property
    def held(self) -> set[Owned]:
        """The partitions that no other member may hold."""
        return self.assigned | self.reported

    def request(self, **changed: Any) -> ConsumerGroupHeartbeatRequest:
        """A full request: the subscription and the owned partitions, with some fields changed."""
        fields: dict[str, Any] = {
            "group_id": self.group, "member_id": self.id, "member_epoch": self.epoch, "instance_id": self.instance_id,
            "rack_id": self.rack_id, "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "subscribed_topic_names": None if self.regex is not None and not self.topics else self.topics,
            "subscribed_topic_regex": self.regex, "server_assignor": self.assignor,
            "topic_partitions": [] if self.epoch == JOINING else owned_partitions(self.assigned),
        }  # fmt: skip
        return ConsumerGroupHeartbeatRequest(**fields | changed)

    def ask(self, request: ConsumerGroupHeartbeatRequest | None = None, **changed: Any) -> Any:
        """Send one heartbeat, and return the response, also an error. Does not change the member's state."""
        said = request or self.request(**changed)
        connection = self.broker.connection(self.address)
        connection.client_id = CLIENT_ID  # the client id that the group must report (CGH-20)
        return self.broker.call(said, self.version, to=connection)

    def beat(self, *, full: bool = False, **changed: Any) -> Any:
        """Send a heartbeat with the changed fields, which must succeed, and adopt the assignment of the response."""
        if self.epoch == JOINING or full:
            request = self.request(**changed)
        else:
            owned = owned_partitions(self.assigned) if self.assigned != self.reported else None
            said: dict[str, Any] = {"topic_partitions": owned} | changed
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=self.id, member_epoch=self.epoch, instance_id=self.instance_id, **said
            )
        silent_s, self.beaten_s = time.monotonic() - self.beaten_s, time.monotonic()
        answer = self.ask(request)
        is_unknown = answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID and self.epoch > JOINING
        if is_unknown and silent_s >= max(self._session_s(), LEAST_SESSION_S):
            self.broker.skip(
                f"this machine was too slow: {self.id} said nothing for {silent_s:.1f} s, a session or more"
            )
        if answer.error_code != ErrorCode.NONE:
            raise Failed(
                f"a heartbeat of {self.id} in {self.group}: {error_name(answer.error_code)} {answer.error_message}"
            )
        self.learn(answer, owned=set() if self.epoch == JOINING else set(self.assigned))
        return answer

    def learn(self, answer: Any, owned: set[Owned]) -> None:
        """Adopt the epoch and the assignment of the response to a heartbeat that reported `owned`."""
        self.reported = owned
        self.id, self.epoch = self.id or answer.member_id, answer.member_epoch
        if answer.assignment is not None:
            self.assigned = reported_in(answer)

    @built_on("BAS-11")
    def join(self) -> Any:
        """Send the first heartbeat, and return the response."""
        self.epoch, self.assigned, self.reported = JOINING, set(), set()
        answer = self.beat(full=True)
        self._expect_joined()
        return answer

    @built_on("BAS-11")
    def _expect_joined(self) -> None:
        """Fail where the member that joined has no epoch above 0."""
        if self.epoch <= JOINING:
            raise Failed(f"a heartbeat that joins {self.group} succeeded with member epoch {self.epoch}")

    def leave(self, epoch: int = LEAVING) -> Any:
        """Leave, for good or for a while, which must succeed, and return the response."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=epoch, instance_id=self.instance_id
        )
        answer = self.ask(request)
        if answer.error_code != ErrorCode.NONE:
            raise Failed(f"leaving {self.group}: {error_name(answer.error_code)} {answer.error_message}")
        self.assigned, self.reported = set(), set()
        return answer


def reported_in(answer: Any) -> set[Owned]:
    """The partitions of a response's assignment; empty where it has none. Errors: Failed for one that is listed twice."""
    stated = assigned_partitions(answer)
    if len(set(stated)) != len(stated):
        failure = Failed(f"an assignment reports partitions twice: {sorted(stated)[:5]}")
        failure.built_on = "CGH-18"
        raise failure
    return set(stated)


def expect_apart(broker: Broker, consumers: Sequence[Consumer]) -> None:
    """Fail where two consumers hold one partition."""
    for one, other in itertools.combinations(consumers, 2):
        if both := one.held & other.held:
            broker.fail(f"{one.id} and {other.id} both hold {sorted(both)[:3]}")


@built_on("CGH-18")
def settle(
    *consumers: Consumer,
    wanted: set[Owned] | None = None,
    topics: Collection[Topic] = (),
    what: str = "",
    within_s: float = 0.0,
) -> None:
    """Send heartbeats until the consumers are in one epoch, have reported their partitions, and own exactly the wanted ones.

    `wanted` defaults to all partitions of `topics`. Fails as soon as two consumers hold one partition. Waits up to 30 seconds
    by default.
    """
    broker = consumers[0].broker
    all_of = partitions_of(*topics) if wanted is None else wanted
    stated = what or f"{len(consumers)} consumers own {len(all_of)} partitions"

    missing_state = False
    seen: object = None
    since_s = time.monotonic()

    def settled() -> bool:
        nonlocal missing_state, seen, since_s
        for consumer in consumers:
            consumer.beat()
            expect_apart(broker, consumers)
        owned = [partition for consumer in consumers for partition in consumer.assigned]
        said = all(consumer.assigned == consumer.reported for consumer in consumers)
        together = said and len({one.epoch for one in consumers}) == 1 and sorted(owned) == sorted(all_of)
        shares = [(one.epoch, sorted(one.assigned)) for one in consumers]
        if not together or shares != seen:
            seen, since_s = shares, time.monotonic()
        stable = is_stable(broker, consumers[0].group)
        if stable is None:
            return together and time.monotonic() - since_s >= UNCHANGED_S
        missing_state = together and not stable
        return together and stable

    try:
        broker.eventually(settled, stated, within_s=within_s or SETTLED_WITHIN_S, every_s=BEAT_S)
    except Failed as failure:
        failure.built_on = failure.built_on or ("CGH-20" if missing_state else "")
        raise
    broker.saw(stated)


def is_stable(broker: Broker, group: str) -> bool | None:
    """Whether the group's state is Stable; None for a target that does not describe groups, or that reports a state unknown
    to Kafka (CGH-20 judges it).

    Without this check, a group that has not yet computed an assignment for a new member would look settled.
    """
    if ConsumerGroupDescribeRequest.KEY not in broker.subject.api_versions:
        return None
    state = described_one(broker, group).group_state
    return state == STABLE if state in STATES else None


@built_on("BAS-11")
def joined(broker: Broker, group: str, count: int, topics: Sequence[Topic], **options: Any) -> list[Consumer]:
    """`count` consumers of a group, which together own all partitions of these topics."""
    consumers = [Consumer(broker, group, topics, **options) for _ in range(count)]
    for consumer in consumers:
        consumer.join()
    settle(*consumers, topics=topics)
    return consumers


def described(broker: Broker, *groups: str, version: int | None = None) -> list[Any]:
    """The groups of a ConsumerGroupDescribe response."""
    answer = broker.call(
        ConsumerGroupDescribeRequest(group_ids=list(groups)), version, to=broker.coordinator(groups[0])
    )
    return list(answer.groups)


def described_one(broker: Broker, group: str) -> Any:
    """The only group of a ConsumerGroupDescribe response for one."""
    return only(described(broker, group), "group in the answer to ConsumerGroupDescribe")


def await_known(consumers: Sequence[Consumer], *, within_s: float = 0.0) -> None:
    """Wait until the group's coordinator, which may now be another node, has loaded the group."""
    broker = consumers[0].broker

    def answered() -> bool:
        with suppress(Misbehaved):
            address = broker.coordinator(consumers[0].group)
            for consumer in consumers:
                consumer.address = address
            said = consumers[0].request(topic_partitions=owned_partitions(consumers[0].assigned))
            return consumers[0].ask(said).error_code not in RETRIABLE
        return False

    broker.eventually(answered, f"the coordinator of {consumers[0].group} answers for it", within_s=within_s)
