"""Random runs of a consumer group, with lost responses and failovers: no partition ever has two owners. (CGH-09, CGH-18)"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.group_settings import ConsumerGroupSettings
from reference.protocol.errors import ErrorCode, KafkaError
from tests.coordinator.consumer_room import Client, Room, settle

NAMES = "abcd"
TOPICS = ["foo", "bar"]
SUBSCRIPTIONS = st.sampled_from([["foo"], ["bar"], ["foo", "bar"], []])
PATTERNS = st.sampled_from([None, None, "f.*", ".*"])
Beat = tuple[int, int, bool, bool]
"""A heartbeat: milliseconds before it, number of the client, whether it lists its partitions, whether the response is lost."""
BEATS = st.lists(st.tuples(st.sampled_from([0, 100]), st.integers(0, 3), st.booleans(), st.booleans()), max_size=8)
"""Most steps end with heartbeats, since one step alone would seldom be drawn."""


class ConsumerGroupRun(RuleBasedStateMachine):
    """Four clients; the last is static. Responses are lost, topics grow, coordinators fail over, time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room(ConsumerGroupSettings(assignment_interval_ms=100), foo=3, bar=2)
        self.clients: dict[str, Client] = {}
        self.away: set[str] = set()
        self.joined = 0

    def client(self, name: str) -> Client:
        return self.clients[name]

    @rule(name=st.sampled_from(NAMES), topics=SUBSCRIPTIONS, regex=PATTERNS, is_lost=st.booleans())
    def join(self, name: str, topics: list[str], regex: str | None, is_lost: bool) -> None:
        if name in self.clients and name not in self.away:
            return
        self.joined += 1
        client = Client(
            self.room, f"{name}-{self.joined}", instance="i" if name == NAMES[-1] else None, topics=topics, regex=regex
        )
        if is_lost and client.instance is None:
            client.join()  # and the client never learns of it: it asks again; an instance would have to wait for its session's end
        assert client.join().error_code in (ErrorCode.NONE, ErrorCode.UNRELEASED_INSTANCE_ID)
        if client.last.error_code == ErrorCode.NONE:
            self.away.discard(name)
            self.clients[name] = client

    @initialize(count=st.integers(0, 3), topics=SUBSCRIPTIONS)
    def begin(self, count: int, topics: list[str]) -> None:
        for name in NAMES[:count]:
            self.join(name, topics, None, False)

    @rule(beats=BEATS)
    def heartbeats(self, beats: list[Beat]) -> None:
        """Heartbeats of any clients; each may list the owned partitions, and its response may be lost."""
        for ms, number, lists_owned, is_lost in beats:
            self.room.pass_time(ms)
            present = sorted(self.clients.keys() - self.away)
            if present:
                client = self.client(present[number % len(present)])
                client.beat(owned=lists_owned, lost=is_lost)
                if not is_lost and client.last.error_code in (
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.FENCED_MEMBER_EPOCH,
                ):
                    client.join()

    @precondition(lambda self: self.clients.keys() - self.away)
    @rule(data=st.data(), topics=SUBSCRIPTIONS, beats=BEATS)
    def subscribe(self, data: st.DataObject, topics: list[str], beats: list[Beat]) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients.keys() - self.away)))
        if self.client(name).subscribe(*topics).error_code != ErrorCode.NONE:
            self.client(name).join()
        self.heartbeats(beats)

    @precondition(lambda self: self.clients.keys() - self.away)
    @rule(data=st.data(), beats=BEATS)
    def leave(self, data: st.DataObject, beats: list[Beat]) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients.keys() - self.away)))
        if self.client(name).instance is not None and data.draw(st.booleans()):
            self.client(name).leave(-2)
            self.away.add(name)
        else:
            self.client(name).leave()
            del self.clients[name]
        self.heartbeats(beats)

    @rule(ms=st.sampled_from([1, 99, 100, 1_000, 11_000]), beats=BEATS)
    def pass_time(self, ms: int, beats: list[Beat]) -> None:
        self.room.pass_time(ms)
        self.heartbeats(beats)

    @precondition(lambda self: len(self.clients) > 1)
    @rule()
    def all_are_silent_for_too_long(self) -> None:
        self.room.pass_time(45_000)
        self.clients.clear()
        self.away.clear()

    @rule(topic=st.sampled_from(TOPICS), beats=BEATS)
    def topic_grows(self, topic: str, beats: list[Beat]) -> None:
        id = self.room.topics.id_of(topic)
        assert id is not None
        if self.room.topics.partition_count(id) < 6:
            self.room.topics.grow(topic, self.room.topics.partition_count(id) + 1)
            self.room.consumer.topics_changed([topic], are_new=True)
        self.heartbeats(beats)

    @rule(topic=st.sampled_from(TOPICS), beats=BEATS)
    def topic_is_made_again(self, topic: str, beats: list[Beat]) -> None:
        self.room.topics.delete(topic)
        self.room.topics.make(topic, 2)
        self.room.consumer.topics_changed([topic], are_new=True)
        self.heartbeats(beats)

    @rule(compacts=st.booleans())
    def coordinator_fails_over(self, compacts: bool) -> None:
        before = self.group()
        if compacts:
            self.room.compact()
        self.room.fail_over()
        after = self.group()
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert replace(after, checked_at_epoch=None) == replace(before, checked_at_epoch=None)

    def group(self) -> ConsumerGroup | None:
        try:
            return self.room.group()
        except KafkaError:
            return None

    @invariant()
    def no_partition_is_in_two_current_assignments(self) -> None:
        group = self.group()
        held = [partition for member in group.members.values() for partition in member.held] if group else []
        assert len(held) == len(set(held))
        assert group is None or group.holders == {each: id for id, m in group.members.items() for each in m.held}

    @invariant()
    def no_two_clients_own_a_partition(self) -> None:
        """Only clients whose session is not over count: others may not have learned of its end yet."""
        group = self.group()
        members = group.members if group else {}
        owned = [each for client in self.clients.values() if client.id in members for each in client.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def no_member_is_ahead_of_its_target(self) -> None:
        group = self.group()
        if group is not None:
            assert group.assignment_epoch <= group.epoch
            assert all(member.epoch <= group.assignment_epoch for member in group.members.values())

    def teardown(self) -> None:
        """Without further faults the members come to own all subscribed partitions."""
        alive = [client for name, client in self.clients.items() if name not in self.away]
        for client in alive:
            if client.beat().error_code != ErrorCode.NONE:
                client.join()
        self.room.pass_time(11_000)
        settle(self.room, alive, rounds=46)  # static members that are away are given up by then
        settle(self.room, alive, rounds=8)
        for client in alive:
            assert client.last.error_code == ErrorCode.NONE
        group = self.group()
        if not alive:
            return
        assert group is not None, "members whose heartbeats succeed have a group"
        wanted: set[tuple[str, int]] = set()
        for client in alive:
            for topic in group.topics_of(group.member(client.id)):
                id = self.room.topics.id_of(topic)
                wanted |= {(topic, each) for each in range(self.room.topics.partition_count(id))} if id else set()
        reserved = {p for m in group.members.values() if m.epoch == -2 for p in m.held}
        owned = set().union(*(client.names() for client in alive))
        assert owned == wanted - self.room.named(p for p in reserved if self.room.topics.name_of(p[0]))
        assert reserved or self.away or group.state_name == "Stable"


TestConsumerGroupRun = ConsumerGroupRun.TestCase
TestConsumerGroupRun.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
