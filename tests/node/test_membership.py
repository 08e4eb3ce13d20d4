"""A broker's registration and heartbeats."""

from __future__ import annotations

import uuid

from reference.node.membership import (
    FIRST_HEARTBEAT_MS,
    NO_CONTROLLER_MS,
    RETRY_MS,
    Answered,
    Membership,
    MetadataProgress,
    State,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from reference.protocol.primitives import AT_ONCE, FIRST_OFFSET, Offset, TimestampMs
from reference.protocol.schema import Message

INTERVAL_MS = 2000


class Broker:
    """A membership, and the controller that the test plays."""

    def __init__(self) -> None:
        self.applied = FIRST_OFFSET
        self.are_replicas_behind = False
        self.asked: list[tuple[Message, Answered]] = []
        self.member = Membership(
            BrokerRegistrationRequest(broker_id=1),
            heartbeat_interval_ms=INTERVAL_MS,
            directory_failure_timeout_ms=30_000,
            progress=MetadataProgress(lambda: self.applied, lambda: self.are_replicas_behind),
            ask=lambda body, answered, now: self.asked.append((body, answered)),
            log=lambda level, message: None,
            now=AT_ONCE,
        )

    def answer(self, answer: Message | None, now: int = 0) -> Message:
        body, answered = self.asked.pop()
        answered(answer, TimestampMs(now))
        return body

    def leave(self, now: int, timeout_ms: int) -> None:
        self.member.leave(TimestampMs(now), timeout_ms)

    def beat(self, now: int) -> BrokerHeartbeatRequest:
        heartbeat = self.tick(now)
        assert isinstance(heartbeat, BrokerHeartbeatRequest)
        return heartbeat

    def tick(self, now: int) -> Message | None:
        self.member.tick(TimestampMs(now))
        return self.asked[-1][0] if self.asked else None

    def register(self) -> None:
        assert isinstance(self.tick(0), BrokerRegistrationRequest)
        self.answer(BrokerRegistrationResponse(broker_epoch=7))

    def run(self) -> None:
        self.register()
        self.applied = Offset(8)
        self.member.metadata_applied(AT_ONCE)
        heartbeat = self.tick(0)
        assert isinstance(heartbeat, BrokerHeartbeatRequest) and not heartbeat.want_fence
        self.answer(BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True))


def test_registration_catching_up_and_unfencing() -> None:
    broker = Broker()
    member = broker.member
    broker.register()
    assert (member.state, member.broker_epoch, member.has_caught_up) == (State.RECOVERING, 7, False)
    heartbeat = broker.tick(0)
    assert isinstance(heartbeat, BrokerHeartbeatRequest)
    assert (heartbeat.want_fence, heartbeat.broker_epoch, heartbeat.current_metadata_offset) == (True, 7, -1)
    broker.answer(BrokerHeartbeatResponse(is_fenced=True), 5)
    assert member.next_deadline() == 5 + FIRST_HEARTBEAT_MS
    broker.applied = Offset(7)
    member.metadata_applied(TimestampMs(6))
    assert not member.has_caught_up, "its own registration is at offset 7"
    broker.applied = Offset(8)
    member.metadata_applied(TimestampMs(6))
    assert member.has_caught_up and member.is_fenced
    assert isinstance(broker.tick(6), BrokerHeartbeatRequest)
    broker.answer(BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True), 7)
    assert not member.is_fenced and member.next_deadline() == 7 + INTERVAL_MS


def test_a_broker_stays_fenced_until_its_replicas_follow() -> None:
    broker = Broker()
    broker.register()
    broker.applied = Offset(8)
    broker.are_replicas_behind = True
    broker.member.metadata_applied(AT_ONCE)
    assert broker.member.has_caught_up and broker.beat(0).want_fence
    broker.answer(BrokerHeartbeatResponse(is_fenced=True, is_caught_up=True), 1)
    assert broker.tick(2) is None and broker.member.state is State.RECOVERING
    broker.are_replicas_behind = False
    heartbeat = broker.beat(3)
    assert not heartbeat.want_fence and broker.member.state is State.RUNNING
    broker.answer(BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True), 4)
    broker.are_replicas_behind = True
    assert not broker.beat(4 + INTERVAL_MS).want_fence, "later changes are followed while it serves"


def test_a_broker_in_controlled_shutdown_that_was_forgotten_asks_again_after_a_pause() -> None:
    for code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
        broker = Broker()
        broker.run()
        broker.leave(10, timeout_ms=1000)
        broker.tick(10)
        broker.answer(BrokerHeartbeatResponse(error_code=code), 11)
        assert broker.tick(11 + RETRY_MS - 1) is None and broker.member.state is State.LEAVING
        assert broker.beat(11 + RETRY_MS).want_shut_down


def test_one_question_at_a_time_and_no_answer_is_asked_again() -> None:
    broker = Broker()
    for now in (0, 1, 5000):
        broker.tick(now)
    assert len(broker.asked) == 1
    broker.answer(None, 5000)
    assert broker.tick(5000 + RETRY_MS - 1) is None
    assert isinstance(broker.tick(5000 + RETRY_MS), BrokerRegistrationRequest)


def test_a_refused_registration_is_asked_again() -> None:
    for code in (
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        999,
    ):
        broker = Broker()
        broker.tick(0)
        broker.answer(BrokerRegistrationResponse(error_code=code))
        assert broker.member.state is State.STARTING
        assert isinstance(broker.tick(RETRY_MS), BrokerRegistrationRequest)


def test_a_controller_that_forgot_the_broker_makes_it_register_again() -> None:
    for code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
        broker = Broker()
        broker.run()
        assert isinstance(broker.tick(INTERVAL_MS), BrokerHeartbeatRequest)
        broker.answer(BrokerHeartbeatResponse(error_code=code), INTERVAL_MS)
        assert isinstance(broker.tick(INTERVAL_MS), BrokerRegistrationRequest)


def test_leaving_waits_for_leave() -> None:
    broker = Broker()
    broker.run()
    broker.leave(10, timeout_ms=1000)
    heartbeat = broker.tick(10)
    assert isinstance(heartbeat, BrokerHeartbeatRequest) and heartbeat.want_shut_down
    broker.answer(BrokerHeartbeatResponse(is_fenced=False), 11)
    assert broker.member.state is State.LEAVING
    broker.tick(11 + FIRST_HEARTBEAT_MS)
    broker.answer(BrokerHeartbeatResponse(is_fenced=False, should_shut_down=True), 30)
    assert broker.member.state is State.GONE and broker.member.next_deadline() is None


def test_leaving_does_not_wait_for_ever() -> None:
    broker = Broker()
    broker.run()
    broker.leave(10, timeout_ms=1000)
    broker.tick(10)
    broker.member.tick(TimestampMs(1009))
    assert broker.member.state is State.LEAVING
    broker.member.tick(TimestampMs(1010))
    assert broker.member.state is State.GONE


def test_without_time_for_it_no_leave_is_asked_for() -> None:
    broker = Broker()
    broker.run()
    broker.leave(10, timeout_ms=0)
    assert broker.member.state is State.GONE and broker.member.next_deadline() is None


def test_cordoned_directories_are_reported_from_the_first_on() -> None:
    broker, cordoned = Broker(), list[uuid.UUID]()
    broker.member.cordoned = lambda: [*cordoned]
    broker.run()
    assert broker.beat(INTERVAL_MS).cordoned_log_dirs is None, "it has none"
    broker.answer(BrokerHeartbeatResponse(is_fenced=False), INTERVAL_MS)
    for reported in ([uuid.UUID(int=7)], []):
        cordoned[:] = reported
        broker.member.replayed(True, TimestampMs(INTERVAL_MS + 1))
        assert broker.beat(INTERVAL_MS + 1).cordoned_log_dirs == reported, "at once"
        broker.answer(BrokerHeartbeatResponse(is_fenced=False), INTERVAL_MS + 1)


def test_a_broker_that_is_gone_does_not_register_again() -> None:
    broker = Broker()
    broker.run()
    broker.leave(10, timeout_ms=1000)
    broker.tick(10)
    broker.member.tick(TimestampMs(1010))
    broker.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), 1020)
    assert broker.member.state is State.GONE and broker.member.next_deadline() is None


def test_a_broker_that_never_registered_stops_at_once() -> None:
    broker = Broker()
    broker.leave(0, timeout_ms=1000)
    assert broker.member.state is State.GONE


def test_a_stop_during_registration_waits_for_the_broker_epoch() -> None:
    broker = Broker()
    broker.tick(0)
    broker.leave(0, timeout_ms=1000)
    assert broker.member.state is State.STARTING
    broker.answer(BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER), 10)
    broker.tick(10 + RETRY_MS)
    broker.answer(None, 200)
    assert isinstance(broker.tick(200 + RETRY_MS), BrokerRegistrationRequest)
    broker.answer(BrokerRegistrationResponse(broker_epoch=7), 310)
    assert (broker.member.state, broker.member.broker_epoch) == (State.GONE, 7)


def test_a_stop_during_registration_ends_by_a_refusal_or_a_timeout() -> None:
    refused = Broker()
    refused.tick(0)
    refused.leave(0, timeout_ms=1000)
    refused.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION), 10)
    assert (refused.member.state, refused.member.broker_epoch) == (State.GONE, -1)

    for timeout_ms, limit in ((1000, 1000), (100_000, NO_CONTROLLER_MS)):
        unanswered = Broker()
        unanswered.tick(0)
        unanswered.leave(0, timeout_ms)
        assert unanswered.member.next_deadline() == limit
        unanswered.member.tick(TimestampMs(limit - 1))
        assert unanswered.member.state is State.STARTING
        unanswered.member.tick(TimestampMs(limit))
        assert unanswered.member.state is State.GONE


def test_the_last_of_a_cluster_that_stops_finds_no_controller_to_ask() -> None:
    broker = Broker()
    broker.run()
    broker.leave(10, timeout_ms=100_000)
    for now in range(10, 10 + NO_CONTROLLER_MS, RETRY_MS):
        assert broker.tick(now) is not None
        broker.answer(None, now)
        assert broker.member.state is State.LEAVING
    broker.member.tick(TimestampMs(10 + NO_CONTROLLER_MS))
    assert broker.member.state is State.GONE


def test_a_broker_that_stops_before_it_has_caught_up_never_catches_up() -> None:
    """Otherwise it would act on metadata about its earlier incarnation (ServeBeforeReplay); found by a simulated trace."""
    starting = Broker()
    starting.leave(0, 1_000)
    starting.applied = Offset(100)
    starting.member.metadata_applied(TimestampMs(1))
    assert (starting.member.state, starting.member.has_caught_up) == (State.GONE, False)

    recovering = Broker()
    recovering.register()
    recovering.leave(0, 1_000)
    assert (recovering.member.state, recovering.member.has_caught_up) == (State.LEAVING, False)
    recovering.applied = Offset(8)
    recovering.member.metadata_applied(TimestampMs(1))
    assert (recovering.member.state, recovering.member.has_caught_up) == (State.LEAVING, True)
