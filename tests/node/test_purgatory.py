"""Waiting requests: woken by key in the order of arrival, answered at their deadline, dropped with their connection."""

from reference.node.requests import Purgatory
from reference.protocol.primitives import NEVER, TimestampMs

A, B = ("a", 0), ("b", 0)


class Car:
    def __init__(self, connection: int, log: list[str], *, awaits_commits: bool = True) -> None:
        self.connection = connection
        self.awaits_commits = awaits_commits
        self.ready = False
        self._log = log

    def try_complete(self, now: TimestampMs, key: object) -> bool:
        if self.ready:
            self._log.append(f"{self.connection} completed at {now}")
        return self.ready

    def expire(self, now: TimestampMs) -> None:
        self._log.append(f"{self.connection} expired at {now}")

    def abandon(self) -> None:
        self._log.append(f"{self.connection} abandoned")


def test_wakes_in_the_order_of_arrival_and_only_what_is_ready() -> None:
    log: list[str] = []
    lot: Purgatory[Car] = Purgatory()
    cars = [Car(number, log) for number in (3, 1, 2)]
    for car in cars:
        lot.park(car, [A], TimestampMs(100))
    cars[0].ready = cars[2].ready = True
    lot.wake(B, TimestampMs(5))
    assert log == []
    lot.wake(A, TimestampMs(6))
    assert log == ["3 completed at 6", "2 completed at 6"]
    assert len(lot) == 1


def test_what_waits_for_records_alone_is_not_woken_for_commits() -> None:
    log: list[str] = []
    lot: Purgatory[Car] = Purgatory()
    cars = [Car(1, log, awaits_commits=False), Car(2, log)]
    for car in cars:
        lot.park(car, [A], TimestampMs(100))
        car.ready = True
    lot.wake(A, TimestampMs(5), has_records=False)
    assert log == ["2 completed at 5"]
    lot.wake(A, TimestampMs(6))
    assert log == ["2 completed at 5", "1 completed at 6"]


def test_a_request_that_watches_two_keys_is_answered_once() -> None:
    log: list[str] = []
    lot: Purgatory[Car] = Purgatory()
    car = Car(1, log)
    lot.park(car, [A, B], TimestampMs(100))
    car.ready = True
    lot.wake(A, TimestampMs(1))
    lot.wake(B, TimestampMs(2))
    lot.tick(TimestampMs(1000))
    assert log == ["1 completed at 1"]
    assert lot.next_deadline() == NEVER


def test_deadlines_are_met_in_their_order() -> None:
    log: list[str] = []
    lot: Purgatory[Car] = Purgatory()
    for connection, deadline in ((1, 30), (2, 10), (3, 20)):
        lot.park(Car(connection, log), [A], TimestampMs(deadline))
    assert lot.next_deadline() == 10
    lot.tick(TimestampMs(20))
    assert log == ["2 expired at 20", "3 expired at 20"]
    assert lot.next_deadline() == 30


def test_a_closed_connection_is_forgotten() -> None:
    log: list[str] = []
    lot: Purgatory[Car] = Purgatory()
    car = Car(1, log)
    lot.park(car, [A], TimestampMs(10))
    lot.forget(1)
    lot.forget(1)
    car.ready = True
    lot.wake(A, TimestampMs(1))
    lot.tick(TimestampMs(10))
    assert log == ["1 abandoned"]
    assert len(lot) == 0


def test_what_wakes_itself_while_it_completes_is_answered_once() -> None:
    log: list[str] = []
    lot: Purgatory[Car] = Purgatory()

    class Waker(Car):
        def try_complete(self, now: TimestampMs, key: object) -> bool:
            completed = super().try_complete(now, key)
            if len(log) < 5:
                lot.wake(A, now)
            return completed

    car = Waker(1, log)
    car.ready = True
    lot.park(car, [A], TimestampMs(100))
    lot.wake(A, TimestampMs(1))
    assert log == ["1 completed at 1"] and len(lot) == 0
