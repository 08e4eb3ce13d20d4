"""Broker sessions, and the responses to heartbeats.

Requests that are drawn beside Kafka have no test here (`test_kafka_decides_alike`).
"""

import pytest

from reference.controller.heartbeats import Heartbeats
from reference.protocol.primitives import BrokerEpoch, NodeId, TimestampMs
from tests.controller.cluster import SESSION_MS, ControlledCluster, two_brokers


@pytest.mark.step("replication", "UnfenceBroker")
def test_a_broker_is_unfenced_once_it_has_replayed_its_registration() -> None:
    cluster = ControlledCluster()
    epoch = cluster.register(cluster.registration(3))
    answer = cluster.heartbeat(3, replayed=epoch - 1)
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (False, True, False)
    answer = cluster.heartbeat(3, replayed=epoch, want_fence=True)
    assert (answer.is_caught_up, answer.is_fenced) == (True, True)
    answer = cluster.heartbeat(3, replayed=epoch)
    assert (answer.is_caught_up, answer.is_fenced) == (True, False)
    assert cluster.image.is_active(NodeId(3))


def test_silent_brokers_are_fenced_one_at_a_time_after_a_whole_session() -> None:
    cluster = two_brokers()
    assert cluster.heartbeats.next_deadline() == SESSION_MS + 1
    assert cluster.heartbeats.overdue(cluster.image, TimestampMs(SESSION_MS)) is None
    cluster.now = TimestampMs(100)
    cluster.heartbeat(1)
    assert cluster.heartbeats.next_deadline() == SESSION_MS + 1
    assert cluster.heartbeats.overdue(cluster.image, TimestampMs(SESSION_MS + 1)) == 0
    assert cluster.heartbeats.overdue(cluster.image, TimestampMs(SESSION_MS + 1)) is None
    assert cluster.heartbeats.next_deadline() == SESSION_MS + 101
    assert cluster.heartbeats.overdue(cluster.image, TimestampMs(SESSION_MS + 101)) == 1
    assert cluster.heartbeats.next_deadline() is None


def test_a_new_controller_gives_every_unfenced_broker_a_whole_session() -> None:
    cluster = two_brokers()
    cluster.fence(1)
    later = Heartbeats(SESSION_MS, cluster.image, now=TimestampMs(1_000_000))
    assert later.overdue(cluster.image, TimestampMs(1_000_000 + SESSION_MS)) is None
    assert later.overdue(cluster.image, TimestampMs(1_000_001 + SESSION_MS)) == 0
    assert later.overdue(cluster.image, TimestampMs(1_000_001 + SESSION_MS)) is None


def test_sessions_are_extended_while_the_controller_is_busy_and_end_all_the_same() -> None:
    cluster = two_brokers()
    heartbeats = cluster.heartbeats
    heartbeats.extend(1000, TimestampMs(1000))
    assert heartbeats.overdue(cluster.image, TimestampMs(SESSION_MS + 1000)) is None
    cluster.now = TimestampMs(SESSION_MS)
    cluster.heartbeat(1)
    for times in range(1, 101):  # the controller is busy all the time: a silent broker is fenced, but later
        heartbeats.extend(SESSION_MS, TimestampMs((1 + times) * SESSION_MS))
    assert heartbeats.overdue(cluster.image, TimestampMs(2 * SESSION_MS)) is None
    assert heartbeats.overdue(cluster.image, TimestampMs(2 * SESSION_MS + 1)) == 0
    assert heartbeats.overdue(cluster.image, TimestampMs(3 * SESSION_MS)) is None
    assert heartbeats.overdue(cluster.image, TimestampMs(3 * SESSION_MS + 1)) == 1


def test_no_extension_makes_a_session_longer_than_a_new_one() -> None:
    cluster = two_brokers()
    cluster.heartbeats.extend(10 * SESSION_MS, TimestampMs(100))
    assert cluster.heartbeats.overdue(cluster.image, TimestampMs(100 + SESSION_MS)) is None
    assert cluster.heartbeats.overdue(cluster.image, TimestampMs(101 + SESSION_MS)) == 0


def test_strangers_leave_no_trace() -> None:
    cluster = ControlledCluster()
    cluster.heartbeats.receive(cluster.image, NodeId(77), BrokerEpoch(5), now=TimestampMs(0))
    assert cluster.heartbeats.next_deadline() is None


@pytest.mark.step("replication", "ControlledShutdown")
def test_controlled_shutdown_waits_until_the_others_know() -> None:
    cluster = two_brokers()
    answer = cluster.heartbeat(0, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert (cluster.partition().leader, cluster.partition().isr) == (1, [1])
    last = cluster.offset - 1
    cluster.heartbeat(1, replayed=last - 1)
    assert not cluster.heartbeat(0, want_shut_down=True).should_shut_down
    cluster.heartbeat(1, replayed=last)
    answer = cluster.heartbeat(0, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert cluster.image.brokers[NodeId(0)].fenced
