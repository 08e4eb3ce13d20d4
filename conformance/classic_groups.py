"""Members of classic groups: they send JoinGroup, SyncGroup, Heartbeat and LeaveGroup. Each has its own connection.

    group = Group(broker)
    one, other = group.stable(2)             # joined and synchronised; the leader first
    other.begin_join()                       # the coordinator delays the response: `joined()` reads it
    one.heartbeat()                          # returns an error code; by the shared connection while `joined()` is awaited

The coordinator responds to JoinGroup once all members have joined, and to a follower's SyncGroup after the leader's. So for
both one method sends and another one reads. Every other request is sent and answered in one call.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypedDict, Unpack

from conformance.answers import error_name, only
from conformance.broker import RETRIABLE, Broker
from conformance.results import Lack
from conformance.steps import built_on
from conformance.wire import BrokerConnection, Failed, Misbehaved
from linearizability.client.group_member import (
    ASSIGNMENT_VERSION,
    CONSUMER,
    NO_GENERATION,
    NO_MEMBER,
    ClassicMember,
    encode_subscription,
)
from reference.protocol.codec import CodecError, decode, encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from reference.protocol.messages.describe_groups import DescribeGroupsRequest
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.sync_group import SyncGroupRequest

HELD_S = 30.0
"""How long a response that waits for other members' requests may take, in addition to the usual duration of joins."""
JOIN_AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
JOINS_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS}
"""Tolerated in place of ILLEGAL_GENERATION: a member of an earlier generation rejoins on either error."""
FIRST_WITH_IDENTITY = 4
"""The first version of JoinGroup in which a dynamic member must rejoin with the member id that the coordinator assigned
(KIP-394)."""
FIRST_WITH_INSTANCE = 5
"""The first version of JoinGroup with static members (KIP-345)."""
FIRST_LEAVE_OF_SEVERAL = 3
SAME = "the same"
"""A placeholder for the value from the JoinGroup response."""


class Group:
    """An unused group, and the address of its coordinator, which has loaded it."""

    def __init__(
        self, broker: Broker, name: str = "", *, protocol_type: str = CONSUMER, is_classic: bool = True
    ) -> None:
        """Allow more time for a classic group alone: only its joins are delayed by the coordinator."""
        self.broker = broker
        if is_classic:
            broker.be_patient(broker.subject.profile.patience)
        self.held_s = HELD_S + 2 * broker.subject.profile.join_s
        self.name = name or broker.unused_name("group")
        self.protocol_type = protocol_type
        self.numbers = itertools.count(1)
        self.address = broker.coordinator(self.name)
        if broker.subject.profile.knows_unused_groups and broker.serves(LeaveGroupRequest):
            self.await_coordinator()

    @built_on("BAS-07")
    def await_coordinator(self, *, within_s: float = 0.0) -> None:
        """Find the coordinator, and wait until it has loaded the group (15 s by default).

        Sends a LeaveGroup of an unknown member: a Heartbeat gets no error while the group loads.
        """

        def answered() -> bool:
            with suppress(Misbehaved):
                self.address = self.broker.coordinator(self.name)
                return self.member(id="nobody").leave() not in RETRIABLE
            return False

        self.broker.eventually(answered, f"the coordinator of {self.name} answers for it", within_s=within_s)

    def call(self, request: Any, version: int | None = None) -> Any:
        """Send the coordinator a request, and return the response."""
        return self.broker.call(request, version, to=self.address)

    def member(self, **options: Any) -> Member:
        """A member that has not joined yet; the options are those of `Member`."""
        return Member(self, **options)

    def heartbeat(self, member_id: str, generation: int, *, instance_id: str | None = None) -> int:
        """The error code of a Heartbeat with these fields."""
        said = ClassicMember(self.name, id=member_id, generation=generation, instance_id=instance_id)
        return self.call(said.heartbeat()).error_code

    def leave(self, *members: LeaveGroupRequest.MemberIdentity, version: int | None = None) -> Any:
        """The answer to LeaveGroup for members (v3+)."""
        return self.call(LeaveGroupRequest(group_id=self.name, members=list(members)), version)

    @built_on("BAS-07")
    def stable(self, count: int, **options: Any) -> list[Member]:
        """`count` new members, joined and synchronised, the leader first; the options are those of `Member`."""
        members: list[Member] = []
        for _ in range(count):
            members.append(self.member(**options))
            self.admit(members[-1], members[:-1])
            self.synchronise(members)
        return self.leader_first(members)

    @built_on("GRP-03")
    def admit(self, newcomer: Member, present: Sequence[Member] = ()) -> None:
        """Let a new member join and all present members rejoin, into one generation.

        First completes the present generation's SyncGroup: a rebalance before that is judged by GRP-14.
        """
        if not all(one.synchronised for one in present):
            self._assignments(present, {one.id: share_of(one) for one in present})
        newcomer.identify()
        newcomer.begin_join()
        if present:
            self.await_rebalance(present[0])
        for member in present:
            member.begin_join()
        for member in (newcomer, *present):
            member.expect_joined()

    def rejoin(self, members: Sequence[Member]) -> None:
        """Let all members rejoin. The request of the first one, the leader, begins the rebalance."""
        members[0].begin_join()
        if len(members) > 1:
            self.await_rebalance(members[1])
        for member in members[1:]:
            member.begin_join()
        for member in members:
            member.expect_joined()

    @built_on("GRP-14")
    def await_rebalance(self, member: Member) -> None:
        """Wait until Heartbeat asks a member to rejoin. Fails at once on an error that no member of the group may get.

        Accepts ILLEGAL_GENERATION, on which clients rejoin too; GRP-14 judges that Kafka does not return it.
        """

        def asked() -> bool:
            code = member.heartbeat()
            if code not in (ErrorCode.NONE, *JOIN_AGAIN, *RETRIABLE):
                raise Failed(f"another member joins: the Heartbeat of {member.id} is answered with {error_name(code)}")
            return self._asks_to_join(code)

        self.broker.eventually(asked, "a member learns of the rebalance")

    def rebalances(self, member: Member) -> bool:
        """Whether the group waits for this member to rejoin."""
        return self._asks_to_join(member.heartbeat())

    def _asks_to_join(self, heartbeat: int) -> bool:
        """Whether this error code of a Heartbeat asks the member to rejoin. Before 2.6.1 (KAFKA-10134) the code also meant
        that the group waits for its leader's assignment: DescribeGroups then distinguishes the two, where it is served."""
        reported = heartbeat in JOIN_AGAIN
        unambiguous = self.broker.is_kafka("2.6.1") or DescribeGroupsRequest.KEY not in self.broker.subject.api_versions
        return reported and (unambiguous or self.state() == "PreparingRebalance")

    def state(self) -> str:
        """The group's state, from DescribeGroups."""
        answer = self.call(DescribeGroupsRequest(groups=[self.name]))
        return only(answer.groups, f"group {self.name}").group_state

    @built_on("GRP-10")
    def synchronise(self, members: Sequence[Member], assignments: Mapping[str, bytes] | None = None) -> None:
        """Send SyncGroup for every member, the leader last. Each must receive the assignment that the leader sent for it.

        Without `assignments` every member gets a different one. A coordinator that encodes an assignment again, in another
        version, gives the same one: GRP-10 and GRP-30 judge bytes.
        """
        given = assignments if assignments is not None else {one.id: share_of(one) for one in members}
        for id, received in self._assignments(members, given).items():
            if received != given[id] and not is_same_assignment(received, given[id]):
                self.broker.expect_equal(f"the assignment of {id}", received, given[id])

    @built_on("GRP-10")
    def _assignments(self, members: Sequence[Member], given: Mapping[str, bytes]) -> dict[str, bytes]:
        """The assignment that each member receives when the leader sends these. A static member that rejoined receives its
        earlier one."""
        for member in reversed(self.leader_first(members)):
            member.begin_sync(given if member.leads else {})
        received: dict[str, bytes] = {}
        for member in members:
            answer = member.synced()
            try:
                member.expect(answer.error_code, "SyncGroup")
            except Failed as failure:
                if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS and not member.leads:
                    failure.built_on = "GRP-11"  # the coordinator did not delay it until the leader's SyncGroup
                raise
            received[member.id] = bytes(answer.assignment)
        return received

    def leader_first(self, members: Iterable[Member]) -> list[Member]:
        """The members, the group's leader first."""
        return sorted(members, key=lambda one: not one.leads)


def share_of(member: Member) -> bytes:
    """An assignment unique to this member, which no assignor would send: of a topic that the member does not subscribe to."""
    return share_for(member.id)


def share_for(what: str) -> bytes:
    """An encoded assignment that is unique to this text.

    A coordinator may decode the assignments of Kafka's own consumers, and encode them again. So arbitrary bytes would not do.
    """
    topic = f"for-{hashlib.sha256(what.encode(errors='surrogateescape')).hexdigest()[:16]}"
    parts = [ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=[0])]
    said = ConsumerProtocolAssignment(assigned_partitions=parts, user_data=b"")
    return ASSIGNMENT_VERSION.to_bytes(2, "big") + encode(said, ASSIGNMENT_VERSION)


def is_same_assignment(one: bytes, other: bytes) -> bool:
    """Whether both are readable assignments of the same partitions, with the same user data."""
    try:
        first, second = (
            decode(
                ConsumerProtocolAssignment, min(max(int.from_bytes(each[:2], "big"), 0), ASSIGNMENT_VERSION), each[2:]
            )
            for each in (one, other)
        )
    except CodecError:
        return False
    return first.assigned_partitions == second.assigned_partitions and (first.user_data or b"") == (
        second.user_data or b""
    )


def subscription(
    *topics: str, user_data: bytes = b"", version: int = 0, owned: Mapping[str, list[int]] | None = None
) -> bytes:
    """The metadata of a member of Kafka's own consumers: its subscription, and from v1 on the partitions that it owns.

    A coordinator may decode the metadata of the protocol type `consumer`. So arbitrary bytes would not do.
    """
    partitions = [(topic, index) for topic, indexes in (owned or {}).items() for index in indexes]
    return encode_subscription(topics, partitions, version=version, user_data=user_data, apart=False)


class JoinFields(TypedDict, total=False):
    """The fields of a member's JoinGroup that differ from the defaults."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Both are the session timeout of the target's profile, unless given."""
    protocol_type: str
    """The group's, unless given."""


class Member:
    """A member of a group, also before it has joined. Its fields hold the values of its last responses."""

    def __init__(
        self,
        group: Group,
        *,
        id: str = NO_MEMBER,
        protocols: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
        version: int | None = None,
        client_id: str = "",
        **fields: Unpack[JoinFields],
    ) -> None:
        self.group = group
        self.broker = group.broker
        self.id = id
        self.protocols = dict(protocols or {"range": subscription()})
        self.instance_id = instance_id
        self.replaced_id = NO_MEMBER
        """The member id of the static member that this one replaces."""
        usual_ms = group.broker.subject.profile.session_ms
        self.session_timeout_ms = fields.get("session_timeout_ms", usual_ms)
        self.rebalance_timeout_ms = fields.get("rebalance_timeout_ms", usual_ms)
        self.protocol_type = fields.get("protocol_type", group.protocol_type)
        self.version = version
        """The version of JoinGroup. All other requests use their highest version."""
        self.client_id = client_id or f"member-{next(group.numbers)}"
        """Unique by default; GRP-49 judges members that share one."""
        self.generation = NO_GENERATION
        self.synchronised = False
        """Whether the member received an assignment in its generation."""
        self.answer: Any = None
        """The response to the last JoinGroup."""
        self._connection: BrokerConnection | None = None

    @property
    def connection(self) -> BrokerConnection:
        """The member's own connection: a delayed response on it delays no other member."""
        if self._connection is None or self._connection.socket.fileno() < 0:
            self._connection = self.broker.connect(
                self.group.address, client_id=self.client_id, timeout_s=self.group.held_s
            )
        return self._connection

    def hang_up(self) -> None:
        """Close the member's connection; the next request opens a new one."""
        if self._connection:
            self._connection.close()

    @property
    def leads(self) -> bool:
        """Whether the coordinator named this member as the leader."""
        return self.answer is not None and self.answer.leader == self.id != NO_MEMBER

    def successor(self, version: int | None = None) -> Member:
        """This static member after a restart: the same instance id, and no member id (KIP-345)."""
        member = self.group.member(instance_id=self.instance_id, protocols=self.protocols, version=version)
        member.replaced_id = self.id
        return member

    # ---- joining

    def join_request(self) -> JoinGroupRequest:
        """The JoinGroup request of this member."""
        return self._said().join()

    def _said(self) -> ClassicMember:
        """The member's present fields, from which its requests are built."""
        chosen = (self.answer and self.answer.protocol_name) or next(iter(self.protocols), None)
        return ClassicMember(
            self.group.name,
            self.protocols,
            self.id,
            self.instance_id,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocol_type,
            self.generation,
            chosen,
        )

    def begin_join(self) -> None:
        """Send JoinGroup; `joined` reads the response."""
        version = self.broker.version_for(JoinGroupRequest, self.version)
        self.connection.send(self.join_request(), version)

    def joined(self) -> Any:
        """Read the response to JoinGroup, also an error, and adopt its member id and generation."""
        self.answer = self.connection.receive(timeout_s=self.group.held_s)
        if self.answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = self.answer.member_id
            self.broker.belongs_to(self.id, self.group.address, self.connection)
        if self.answer.error_code == ErrorCode.NONE:
            self._take_generation(self.answer.generation_id)
        return self.answer

    @built_on("GRP-03")
    def _take_generation(self, generation: int) -> None:
        """Adopt the generation of a successful JoinGroup. Errors: Failed for a negative one."""
        if generation < 0:
            raise Failed(f"JoinGroup of {self.group.name} succeeded with generation {generation}")
        self.synchronised = self.synchronised and generation == self.generation
        self.generation = generation

    def ask_to_join(self) -> Any:
        """Send one JoinGroup, and return the response, also an error."""
        self.begin_join()
        return self.joined()

    def expect_joined(self) -> Any:
        """Read the response to a JoinGroup that must succeed."""
        answer = self.joined()
        if self.instance_id is not None:
            self._expect_static(answer.error_code)
        self.expect(answer.error_code, "JoinGroup")
        return answer

    @built_on("GRP-20")
    def _expect_static(self, code: int) -> None:
        """Check that a static member joins by its instance id alone, with another member id than its predecessor's
        (KIP-345)."""
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            raise Failed(f"JoinGroup of static member {self.instance_id}: {error_name(code)}")
        if self.id == self.replaced_id != NO_MEMBER:
            raise Failed(f"static member {self.instance_id} joined again and got its former member id")

    def identify(self) -> None:
        """Request a member id, where the coordinator admits no member without one (KIP-394)."""
        if self.broker.subject.profile.admits_at_once:
            return
        version = self.broker.version_for(JoinGroupRequest, self.version)
        if self.id == NO_MEMBER and self.instance_id is None and version >= FIRST_WITH_IDENTITY:
            answer = self.ask_to_join()
            if answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT:
                self._skip_out_of_bounds()
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                raise Failed(f"JoinGroup without a member id: {error_name(answer.error_code)}")

    def join(self) -> Any:
        """Join, which must succeed without another member's request, and return the response."""
        self.identify()
        self.begin_join()
        return self.expect_joined()

    # ---- synchronising

    def sync_request(
        self,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        protocol_type: str | None = SAME,
        protocol_name: str | None = SAME,
    ) -> SyncGroupRequest:
        """The SyncGroup request of this member; a leader's carries the assignments by member id.

        The protocol type defaults to the member's, and the protocol name to that of the JoinGroup response.
        """
        request = self._said().sync(assignments)
        request.generation_id = self.generation if generation is None else generation
        request.protocol_type = self.protocol_type if protocol_type == SAME else protocol_type
        request.protocol_name = request.protocol_name if protocol_name == SAME else protocol_name
        return request

    def begin_sync(self, assignments: Mapping[str, bytes] | None = None, **options: Any) -> None:
        """Send SyncGroup; `synced` reads the response."""
        request = self.sync_request(assignments, **options)
        self.connection.send(request, self.broker.version_for(SyncGroupRequest))

    def synced(self) -> Any:
        """Read the response to SyncGroup, also an error."""
        answer = self.connection.receive(timeout_s=self.group.held_s)
        self.synchronised = self.synchronised or answer.error_code == ErrorCode.NONE
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None, **options: Any) -> Any:
        """Send one SyncGroup, and return the response, also an error."""
        self.begin_sync(assignments, **options)
        return self.synced()

    # ---- staying and leaving

    def heartbeat(self, generation: int | None = None) -> int:
        """The error code of a Heartbeat, in the member's generation unless another one is given."""
        at = self.generation if generation is None else generation
        return self.group.heartbeat(self.id, at, instance_id=self.instance_id)

    def identity(self) -> LeaveGroupRequest.MemberIdentity:
        """This member's entry in a LeaveGroup request."""
        return self._said().identity()

    def _skip_out_of_bounds(self) -> None:
        """Skip where the broker's bounds exclude this session timeout. GRP-02 judges that the broker enforces its bounds."""
        described, needed = self.broker.subject.profile.configs, self.broker.requirement.needs.configs
        least = "group.min.session.timeout.ms"
        if least in needed and least not in described and least not in self.broker.subject.honoured:
            self.broker.skip(f"needs {least}={needed[least]}, of which nothing is known", Lack.CONFIGURATION)
        least_ms, most_ms = (described.get(f"group.{bound}.session.timeout.ms") or "" for bound in ("min", "max"))
        known = least_ms.isdigit() and most_ms.isdigit()
        if known and not int(least_ms) <= self.session_timeout_ms <= int(most_ms):
            self.broker.skip(
                f"needs a session timeout of {self.session_timeout_ms} ms; the target takes {least_ms} to {most_ms}",
                Lack.CONFIGURATION,
            )

    def leave(self) -> int:
        """The error code of a LeaveGroup for this member alone."""
        version = self.broker.version_for(LeaveGroupRequest)
        if version < FIRST_LEAVE_OF_SEVERAL:
            return self.group.call(LeaveGroupRequest(group_id=self.group.name, member_id=self.id), version).error_code
        answer = self.group.leave(self.identity(), version=version)
        errors = [answer.error_code, *(one.error_code for one in answer.members)]
        return next((code for code in errors if code != ErrorCode.NONE), ErrorCode.NONE)

    def expect(self, code: int, what: str) -> None:
        """Require that this member's request succeeded. Errors: Failed, or Skipped where the session timeout is out of
        bounds."""
        if code == ErrorCode.INVALID_SESSION_TIMEOUT:
            self._skip_out_of_bounds()
        if code != ErrorCode.NONE:
            raise Failed(f"{what} of {self.id or 'a new member'} of {self.group.name}: {error_name(code)}")
