"""A session's fetches skip partitions without news, and followers get the same responses as if all were read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.node import fetch as fetching
from reference.node.fetch import Fetching, fetch
from reference.node.fetch_sessions import FetchSessions
from reference.node.quotas import Quotas
from reference.node.requests import Client, Purgatories, Request
from reference.protocol.codec import decode, encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import FIRST_OFFSET, NO_EPOCH, NO_OFFSET, BrokerEpoch, LeaderEpoch, NodeId
from reference.replication.fetch_session import FetchSession, Key, Wanted
from reference.replication.partition import Partition
from reference.replication.partition_state import Peer
from reference.storage.config import LogConfig
from reference.storage.log import Log
from reference.storage.segment_list import LogIdentity
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.three_nodes import calls_of
from tests.replication.replicas import NOW, TOPIC_ID, Registry, batch, bytes_of, incarnation, state

VERSION = 18
FOLLOWERS = (2, 3)


class Leader:
    """Broker 1, which leads some partitions and serves their followers."""

    def __init__(self, partitions: int, settles: bool = True) -> None:
        self.now, self.reads = NOW, 0
        self.registry = Registry()
        self.partitions = [self.make(index) for index in range(partitions)]
        self.purgatories = Purgatories()
        self.reported: list[tuple[int, object]] = []
        """Connections, and the responses to each."""
        self.proposed: list[object] = []
        sessions = FetchSessions(10, random.Random(1))
        if not settles:
            cast(Any, sessions).settle = lambda context, settled: None
        self.purgatories.news = sessions.news
        image = SimpleNamespace(topic_name=lambda id: "t")
        context: Any = SimpleNamespace(
            image=image,
            replicas=self,
            purgatories=self.purgatories,
            responder=self,
            log=lambda *_: None,
            access=SimpleNamespace(may_fetch=lambda *_: True),
        )
        quotas = Quotas(Configuration(NodeId(1), {}, MetadataImage()))
        self.fetching = Fetching(context, sessions, 1 << 20, lambda partition: None, quotas)

    def make(self, index: int) -> Partition:
        disk = SimulatedDisk()
        disk.make_folder(Path("/data"))
        log = Log(
            disk,
            Path(f"/data/t-{index}"),
            LogConfig(segment_index_bytes=1024),
            NOW,
            LogIdentity("t", index, TOPIC_ID),
        )
        found = Partition("t", TOPIC_ID, index, log, NodeId(1), brokers=self.registry, lag_max_ms=1000)
        found.take_up(state(), NOW)
        return found

    def peer(self, broker: int) -> Peer | None:
        return self.registry(broker)

    def partition(self, topic: str, index: int) -> Partition:
        self.reads += 1
        return self.partitions[index]

    def respond(self, request: Request, response: FetchResponse) -> None:
        for topic in response.responses:
            for each in topic.partitions:
                each.records = bytes_of(cast(Any, each.records or b""))
        self.reported.append((request.client.connection, response))

    def fetch(self, body: FetchRequest) -> None:
        asked = decode(FetchRequest, VERSION, encode(body, VERSION))
        request = Request(Client(body.replica_state.replica_id, "127.0.0.1", "PLAINTEXT"), 1, VERSION, 1, None)
        if (response := fetch(self.fetching, request, asked, self.now)) is not None:
            self.respond(request, response)

    def wake(self, index: int) -> None:
        self.purgatories.wake(self.partitions[index], self.now)


class Follower:
    """The fetch session of one broker, with its log end offsets and high watermarks."""

    def __init__(self, node: int, partitions: int) -> None:
        self.node, self.epoch, self.session, self.waits = node, incarnation(node), FetchSession(), False
        self.have: dict[Key, Wanted] = {
            (TOPIC_ID, index): Wanted(FIRST_OFFSET, LeaderEpoch(5), NO_EPOCH, FIRST_OFFSET)
            for index in range(partitions)
        }

    def request(self) -> FetchRequest:
        body = self.session.request(self.have, 1 << 20)
        body.replica_state = FetchRequest.ReplicaState(replica_id=self.node, replica_epoch=self.epoch)
        body.max_wait_ms, body.min_bytes, body.max_bytes = 500, 1, 1 << 20
        self.waits = True
        return body

    def take(self, response: FetchResponse, ends: Sequence[int]) -> None:
        self.waits = False
        self.session.answered(response)
        for topic in response.responses:
            for each in topic.partitions:
                before = self.have[TOPIC_ID, each.partition_index]
                end = ends[each.partition_index] if len(cast(bytes, each.records)) else before.fetch_offset
                self.have[TOPIC_ID, each.partition_index] = replace_wanted(before, end, each)


def replace_wanted(before: Wanted, end: int, data: FetchResponse.PartitionData) -> Wanted:
    if data.error_code:
        return before
    epoch = 5 if end > 0 else -1
    return before._replace(
        fetch_offset=end,
        last_fetched_epoch=epoch,
        log_start=max(before.log_start, data.log_start_offset),
    )


class World:
    """A leader, its twin that reads all partitions each time, and two followers, which get the responses of both."""

    def __init__(self, partitions: int) -> None:
        self.sides = Leader(partitions), Leader(partitions, settles=False)
        self.followers = {node: Follower(node, partitions) for node in FOLLOWERS}
        self.partition_epoch = 10

    def act(self, name: str, index: int, node: int) -> None:
        """Make one step on both sides; then compare responses and states."""
        if name == "idle":
            for _ in range(3 + 2 * index):
                for each in FOLLOWERS:
                    self.act("fetch", 0, each)
                self.act("pass_time", 1, node)
            return
        if name == "fetch":
            if self.followers[node].waits:
                return
            body = self.followers[node].request()
            for side in self.sides:
                side.fetch(body)
        elif name == "isr":
            self.partition_epoch += 1
            for side in self.sides:
                new = replace(side.partitions[index].state, partition_epoch=self.partition_epoch, isr=(1, node))
                if side.partitions[index].take_up(new, side.now):
                    side.wake(index)
        elif name == "restart":
            follower = self.followers[node]
            follower.epoch = BrokerEpoch(follower.epoch + 10)
        else:
            for side in self.sides:
                getattr(self, name)(side, index, node)
        self.deliver()

    def append(self, side: Leader, index: int, node: int) -> None:
        side.partitions[index].produce(batch(b"x"), side.now)
        side.wake(index)

    def delete(self, side: Leader, index: int, node: int) -> None:
        side.partitions[index].delete_records(NO_OFFSET)
        side.purgatories.wake_fetches(("t", index), side.now)

    def pass_time(self, side: Leader, index: int, node: int) -> None:
        side.now += 300 * (1 + index)
        side.purgatories.fetches.tick(side.now)

    def shrink(self, side: Leader, index: int, node: int) -> None:
        leading = side.partitions[index].require_leader()
        if leading.shrink_isr(side.now):
            leading.roll_back_isr(side.now)
            side.reported.append((-1, ("shrinks", index)))

    def register(self, side: Leader, index: int, node: int) -> None:
        side.registry.peers[node] = Peer(self.followers[node].epoch, bool(index % 2))

    def deliver(self) -> None:
        one, other = self.sides
        assert one.reported == other.reported
        ends = [partition.log.log_end_offset for partition in one.partitions]
        for mine, theirs in zip(one.partitions, other.partitions, strict=True):
            assert (mine.high_watermark, mine.pending, mine.state) == (
                theirs.high_watermark,
                theirs.pending,
                theirs.state,
            )
        for connection, response in one.reported:
            if isinstance(response, FetchResponse):
                self.followers[connection].take(response, ends)
        for side in self.sides:
            side.reported.clear()


STEPS = ("idle", "fetch", "append", "pass_time", "shrink", "isr", "delete", "register", "restart")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.sampled_from(FOLLOWERS)), max_size=30))
@example([("idle", 2, 2), ("append", 0, 2), ("shrink", 0, 2)])
def test_followers_are_answered_and_judged_as_if_everything_were_read(steps: list[tuple[str, int, int]]) -> None:
    world = World(3)
    for step in steps:
        world.act(*step)


def test_a_fetch_reads_what_has_news_and_no_other_partition() -> None:
    count = 500
    world = World(count)
    leader, twin = world.sides
    for _ in range(3):
        for node in FOLLOWERS:
            world.act("fetch", 0, node)
        world.act("pass_time", 2, 2)
    leader.reads = twin.reads = 0
    for node in FOLLOWERS:
        world.act("fetch", 0, node)
    assert leader.reads == 0 and twin.reads == 2 * count
    world.act("append", 7, 2)
    assert leader.reads <= 8
    for _ in range(3):
        for node in FOLLOWERS:
            world.act("fetch", 0, node)
    assert leader.reads <= 40 and twin.reads > 2 * count
    assert leader.partitions[7].high_watermark == 1


def cost_of_news_while_a_fetch_waits(count: int) -> int:
    """The number of calls for news of one partition after another, while a fetch waits."""
    leader, follower = Leader(count), Follower(2, count)
    for _ in range(3):
        leader.fetch(follower.request())
        leader.now += 500
        leader.purgatories.fetches.tick(leader.now)
        for _, response in leader.reported:
            assert isinstance(response, FetchResponse)
            follower.take(response, [0] * count)
        leader.reported.clear()
    body = follower.request()
    body.min_bytes = 1 << 20
    leader.fetch(body)
    cost = calls_of(lambda: [leader.wake(index) for index in range(count)])
    assert not leader.reported, "it waits on"
    return cost


def test_news_of_a_partition_while_a_fetch_waits_cost_the_same_however_many_had_news_before() -> None:
    assert cost_of_news_while_a_fetch_waits(400) <= 4.1 * cost_of_news_while_a_fetch_waits(100)


def test_a_fetch_whose_session_went_on_is_refused_and_settles_and_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = Leader(1)
    released: list[object] = []
    monkeypatch.setattr(fetching.Serving, "release", lambda serving: released.append(serving))

    def ask(connection: int, epoch: int, max_wait_ms: int = 500) -> FetchResponse | None:
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])]
        body = FetchRequest(
            session_id=id,
            session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[] if epoch else topics,
        )
        return fetch(
            leader.fetching, Request(Client(connection, "127.0.0.1", "PLAINTEXT"), 1, VERSION, 1, None), body, NOW
        )

    id = 0
    first = ask(1, 0, max_wait_ms=0)
    assert first is not None
    id = first.session_id
    assert ask(1, 1) is None, "it waits"
    second = ask(2, 2, max_wait_ms=0)
    assert second is not None and second.error_code == ErrorCode.NONE
    released.clear()
    leader.partitions[0].produce(batch(b"x"), NOW)
    leader.wake(0)
    leader.now += 500
    leader.purgatories.fetches.tick(leader.now)
    ((connection, refused),) = leader.reported
    assert isinstance(refused, FetchResponse)
    assert (connection, refused.error_code, refused.responses) == (1, ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    assert released, "what was read for it is let go"
    (session,) = leader.fetching.sessions.sessions.values()
    assert (session.epoch, len(session.unsettled), len(session.waiting)) == (3, len(session.partitions), 0)
