"""On a busy machine a sound cluster's followers lag, its writes run out of time, and its leaders lack what one alone had."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.cluster_state import State, Writes
from conformance.consumers import Consumer
from conformance.observations import Observations, Skipped
from conformance.quotas import throttled_after
from conformance.requirement import catalogue
from conformance.requirements import controller_elections, elections, reassignments, replication
from conformance.subject import Subject
from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NO_UUID

NOWHERE = ("127.0.0.1", 1)


class Sound:
    """Three nodes and one partition. `lags` are the looks at which a follower is not in sync, `late` the writes that fail."""

    def __init__(self, broker: Observations, lags: set[int], late: int = 0) -> None:
        self.broker, self.lags, self.late = broker, lags, late
        self.now = State(1, 0, (1, 2, 3), frozenset({1, 2, 3}))
        self.active, self.looks = 3, 0
        self.addresses = dict.fromkeys((1, 2, 3), NOWHERE)
        self.entrance: Any = None

    def cast(self) -> tuple[int, int, int]:
        one, other = (node for node in (1, 2, 3) if node != self.active)
        return one, other, self.active

    def topic(self, *replicas: int, **_: Any) -> Topic:
        self.now = State(replicas[0], 0, replicas, frozenset(replicas))
        return Topic("t", NO_UUID, 1)

    def state(self, topic: Topic, via: int | None = None) -> State:
        self.looks += 1
        isr = self.now.isr - ({self.now.replicas[-1]} if self.looks in self.lags else set())
        return replace(self.now, isr=isr)

    def await_isr(self, topic: Topic, *nodes: int) -> State:
        return self.now

    def lead(self, topic: Topic, node: int) -> State:
        self.now = replace(
            self.now, leader=node, epoch=self.now.epoch + 1, replicas=(node, *sorted({*self.now.replicas} - {node}))
        )
        return self.state(topic)

    change_leader = lead

    def elect(self, topic: Topic, kind: int = 0) -> int:
        if topic.name != "t":
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.ELECTION_NOT_NEEDED if self.now.replicas[0] == 1 else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    def reassign(self, topic: Topic, *replicas: int, cancel: bool = False) -> Any:
        code = ErrorCode.NONE if topic.name == "t" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code == ErrorCode.NONE and not {1, 2} <= {*replicas}:
            code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS if cancel else ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if code == ErrorCode.NONE:
            self.now = replace(self.now, replicas=replicas)
        return SimpleNamespace(error_code=code)

    def await_state(self, topic: Topic, wanted: Any, what: str) -> State:
        state = self.state(topic)
        assert wanted(state)
        return state

    def freeze_out(self, topic: Topic, follower: int, value: bytes) -> State:
        self.now = replace(self.now, isr=self.now.isr - {follower})
        return self.now

    def write_some(self, topic: Topic, writes: Writes, acknowledged: int) -> None:
        if acknowledged == 50 and self.late:
            self.late -= 1
            writes.errors.append(int(ErrorCode.REQUEST_TIMED_OUT))

    def quorum(self) -> Any:
        return SimpleNamespace(leader_id=self.active, leader_epoch=self.active + 10 * self.looks)

    def kill(self, node: int) -> None:
        self.active, self.looks = self.active % 3 + 1, self.looks + 1

    def mend(self) -> None:
        """All are alive again."""

    def expect_kept(self, topic: Topic, writes: Writes) -> None:
        """Nothing is lost."""

    def address(self, node: int) -> tuple[str, int]:
        return NOWHERE


@pytest.fixture
def broker() -> Iterator[Any]:
    held: Any = Observations(Subject([NOWHERE], "4.3.1"), catalogue()["ELE-04"].requirement)
    held.unused_name = lambda: "unknown"
    yield held


def on(monkeypatch: pytest.MonkeyPatch, module: Any, nodes: Sound) -> None:
    @contextmanager
    def cluster(_: Any) -> Generator[Sound]:
        yield nodes

    monkeypatch.setattr(module, "cluster", cluster)


@pytest.mark.parametrize("lags", [set[int](), {2}, {3}, {4, 5}, set(range(1, 4))])
@pytest.mark.parametrize("id", ["ELE-04", "ELE-05", "ELE-13", "ELE-14"])
def test_a_follower_may_lag_at_an_election(
    id: str, lags: set[int], broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (elections, reassignments):
        on(monkeypatch, module, Sound(broker, lags))
    monkeypatch.setattr(reassignments, "ongoing", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    catalogue()[id].test(broker)  # type: ignore[misc]


def test_an_election_that_always_shortens_the_isr_is_found(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shortening(Sound):
        def lead(self, topic: Topic, node: int) -> State:
            return replace(super().lead(topic, node), isr=frozenset({node}))

    on(monkeypatch, elections, Shortening(broker, set()))
    with pytest.raises(Failed, match="the ISR is the same"):
        catalogue()["ELE-04"].test(broker)  # type: ignore[misc]


def test_a_write_may_run_out_of_time_while_the_active_controller_is_dead(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, controller_elections, Sound(broker, set(), late=1))
    catalogue()["ELE-16"].test(broker)  # type: ignore[misc]

    class Misplacing(Sound):
        """Puts the second topic on the node that was ended, as crabka may."""

        made = 0

        def topic(self, *replicas: int, **more: Any) -> Topic:
            self.made += 1
            if self.made == 2:
                raise Failed("127.0.0.1:1 takes no connection")
            return super().topic(*replicas, **more)

    on(monkeypatch, controller_elections, Misplacing(broker, set()))
    catalogue()["ELE-16"].test(broker)  # type: ignore[misc]
    on(monkeypatch, controller_elections, Sound(broker, set(), late=99))
    with pytest.raises(Failed, match="produce and fetch go on"):
        catalogue()["ELE-16"].test(broker)  # type: ignore[misc]


@pytest.mark.parametrize(("attempts", "goes_on"), [(1, True), (99, False)])
def test_a_fetch_may_meet_a_change_of_leader_while_the_active_controller_is_dead(
    attempts: int, goes_on: bool, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unread(Sound):
        """Serves no fetch until another controller is active, in so many attempts."""

        reads = 0

        def expect_kept(self, topic: Topic, writes: Any) -> None:
            self.reads += 1
            if self.reads % 2 == 1 and self.reads < 2 * attempts:
                raise Failed("a fetch at offset 0 was answered with NOT_LEADER_OR_FOLLOWER(6)")
            super().expect_kept(topic, writes)

    on(monkeypatch, controller_elections, Unread(broker, set()))
    with nullcontext() if goes_on else pytest.raises(Failed, match="produce and fetch go on"):
        catalogue()["ELE-16"].test(broker)  # type: ignore[misc]


@pytest.mark.parametrize("begins", [1, 2, 4, 5])
def test_the_next_leader_may_lack_what_the_leader_alone_had(
    begins: int, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record is committed, and three more are written: no sound leader's epoch begins at offset 5 or later."""
    nodes, fetched = Sound(broker, set()), list[int]()

    def fetch_as(_: Any, topic: Topic, follower: int, offset: int, to: Any) -> None:
        fetched.append(offset)
        if offset == begins:
            nodes.now = replace(nodes.now, isr=nodes.now.isr | {follower})

    on(monkeypatch, replication, nodes)
    monkeypatch.setattr(replication, "end_of_epoch", lambda *_: SimpleNamespace(end_offset=begins))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(replication, "fetch_as", fetch_as)
    monkeypatch.setattr(replication, "NEWS_S", 0.001)
    broker.append, broker.leader_epoch = lambda *_, **__: 0, lambda _: 1
    broker.fetch = lambda *_: SimpleNamespace(high_watermark=1)
    wanted = {
        1: pytest.raises(Skipped, match="reached the next leader"),
        5: pytest.raises(Failed, match="among those written: offset 5"),
    }
    with wanted.get(begins) or contextmanager(lambda: iter([None]))():
        catalogue()["REP-19"].test(broker)  # type: ignore[misc]
        assert fetched[0] == 1
        assert fetched[-1] == begins


class Raising(Sound):
    """KRaft before 3.6 raises the epoch as an ISR shrinks (KAFKA-15021). `fenced` times the follower is fenced before that."""

    fenced = 0

    def freeze_out(self, topic: Topic, follower: int, value: bytes) -> State:
        self.now = replace(super().freeze_out(topic, follower, value), epoch=self.now.epoch + 1)
        return self.now

    def living(self) -> list[int]:
        self.fenced -= 1
        return [1, 3] if self.fenced >= 0 else [1, 2, 3]

    def resume(self, node: int) -> None:
        self.now = replace(self.now, isr=self.now.isr | {node})

    def await_known(self, node: int) -> None:
        """It comes back at once."""


@pytest.mark.parametrize(("fenced", "fails"), [(0, False), (1, False), (2, True)])
def test_a_follower_may_be_fenced_before_its_isr_shrinks(
    fenced: int, fails: bool, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Raising(broker, set())
    nodes.fenced = fenced
    on(monkeypatch, replication, nodes)
    broker.append, broker.end_offset = lambda *_: 0, lambda _: 2
    if fails:
        with pytest.raises(Failed, match="is fenced is True"):
            catalogue()["REP-03"].test(broker)  # type: ignore[misc]
    else:
        catalogue()["REP-03"].test(broker)  # type: ignore[misc]


def test_a_session_that_is_described_as_none_does_not_make_this_machine_slow(broker: Any) -> None:
    broker.subject.profile.configs = {"group.consumer.session.timeout.ms": "0"}
    member = Consumer.__new__(Consumer)
    member.broker, member.group, member.id, member.instance_id = broker, "g", "m", None
    member.epoch, member.beaten_s = 1, time.monotonic()
    member.assigned = member.reported = set()
    member.ask = lambda *_, **__: SimpleNamespace(error_code=ErrorCode.UNKNOWN_MEMBER_ID, error_message="")
    with pytest.raises(Failed, match="UNKNOWN_MEMBER_ID"):
        member.beat()
    member.beaten_s -= 2
    with pytest.raises(Skipped, match="too slow"):
        member.beat()


@pytest.mark.parametrize(("windows", "why"), [("1", "quota.window.num=1 "), ("11", "throttle time")])
def test_a_quota_with_one_window_is_named(windows: str, why: str, broker: Any) -> None:
    broker.subject.profile.configs = {"quota.window.num": windows}
    exchange = SimpleNamespace(outcome="answered", elapsed_ms=1)
    try:
        assert throttled_after(broker, lambda: broker.recorder.exchanges.append(exchange), lambda: 0) == 0
        said = "throttle time of 0"
    except Skipped as skip:
        said = str(skip)
    assert why in said
