"""Linger and batch size: which batches they make, when those leave, and in what order a log gets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linearizability.workload.batching import Accumulator, Batch, Batching


@dataclass
class Log:
    """A producer and the broker that it writes to, in virtual time."""

    limits: Batching
    sent: list[tuple[int, list[str]]] = field(default_factory=list)
    """When each batch left, and with what."""

    def __post_init__(self) -> None:
        self.accumulator: Accumulator[str] = Accumulator(self.limits)

    def append_all(self, *records: tuple[int, str], size_bytes: int = 10) -> None:
        """Append each record at its time; what is due before leaves before, and is answered at once."""
        for now, record in records:
            self.run_until(now - 1)
            self.accumulator.append(0, record, size_bytes, now)
            self.leave(now)
        self.run_until(1_000_000)

    def run_until(self, end: int) -> None:
        while (due := self.accumulator.next_deadline()) is not None and due <= end:
            self.leave(due)

    def leave(self, now: int) -> None:
        for batch in self.accumulator.drain(now):
            self.sent.append((now, batch.records))
            self.accumulator.answered(batch)


class TestWhenABatchLeaves:
    def test_without_linger_each_record_leaves_at_once(self) -> None:
        log = Log(Batching(linger_ms=0))
        log.append_all((0, "a"), (0, "b"), (1, "c"))
        assert log.sent == [(0, ["a"]), (0, ["b"]), (1, ["c"])]

    def test_linger_waits_for_others_from_the_first_record_on(self) -> None:
        log = Log(Batching(linger_ms=5))
        log.append_all((0, "a"), (4, "b"), (5, "c"), (20, "d"))
        assert log.sent == [(5, ["a", "b", "c"]), (25, ["d"])]

    def test_a_batch_that_is_full_by_bytes_does_not_linger(self) -> None:
        log = Log(Batching(linger_ms=100, batch_size_bytes=20))
        log.append_all((0, "a"), (1, "b"), (2, "c"))
        assert log.sent == [(1, ["a", "b"]), (102, ["c"])]

    def test_a_batch_that_is_full_by_count_does_not_linger(self) -> None:
        log = Log(Batching(linger_ms=100, batch_records=3))
        log.append_all((0, "a"), (1, "b"), (2, "c"), (3, "d"))
        assert log.sent == [(2, ["a", "b", "c"]), (103, ["d"])]

    def test_a_record_that_does_not_fit_sends_the_batch_before_it(self) -> None:
        log = Log(Batching(linger_ms=100, batch_size_bytes=25))
        log.append_all((0, "a"), (1, "b"), (2, "c"))
        assert log.sent == [(2, ["a", "b"]), (102, ["c"])]

    def test_a_record_larger_than_a_batch_travels_alone(self) -> None:
        log = Log(Batching(linger_ms=100, batch_size_bytes=5))
        log.append_all((0, "a"), (1, "b"))
        assert log.sent == [(0, ["a"]), (1, ["b"])]

    def test_a_flush_ends_the_waiting(self) -> None:
        accumulator: Accumulator[str] = Accumulator(Batching(linger_ms=100))
        accumulator.append(0, "a", 1, 0)
        accumulator.append(1, "b", 1, 0)
        assert accumulator.drain(7) == []
        accumulator.flush(7)
        assert [batch.records for batch in accumulator.drain(7)] == [["a"], ["b"]]

    def test_longer_linger_makes_fewer_batches_and_the_same_log(self) -> None:
        records = [(now, f"r{now}") for now in range(100)]
        logs = {linger: Log(Batching(linger_ms=linger)) for linger in (0, 4, 49)}
        for log in logs.values():
            log.append_all(*records)
        assert {linger: len(log.sent) for linger, log in logs.items()} == {0: 100, 4: 20, 49: 2}
        for log in logs.values():
            assert [record for _, batch in log.sent for record in batch] == [record for _, record in records]


class TestOrder:
    def three_batches(self, max_in_flight: int) -> Accumulator[str]:
        limits = Batching(linger_ms=0, batch_records=1, max_in_flight=max_in_flight, retry_backoff_ms=100)
        accumulator: Accumulator[str] = Accumulator(limits)
        for record in "abc":
            accumulator.append(0, record, 1, 0)
        return accumulator

    def write(self, accumulator: Accumulator[str], fails: str, until: int = 1000) -> str:
        """The log, when each named record's batch fails the first time it is sent."""
        log = ""
        for now in range(until):
            for batch in accumulator.drain(now):
                if batch.records[0] in fails and batch.attempts == 0:
                    accumulator.failed(batch, now)
                else:
                    log += batch.records[0]
                    accumulator.answered(batch)
        assert accumulator.waiting() == 0
        return log

    def test_one_in_flight_keeps_the_order_whatever_fails(self) -> None:
        assert self.write(self.three_batches(1), fails="ac") == "abc"

    def test_several_in_flight_reorder_where_one_fails(self) -> None:
        assert self.write(self.three_batches(5), fails="") == "abc"
        assert self.write(self.three_batches(5), fails="a") == "bca"

    def test_of_two_that_failed_the_later_goes_first(self) -> None:
        assert self.write(self.three_batches(5), fails="ab") == "cba"

    def test_what_waits_behind_a_failed_batch_does_not_pass_it(self) -> None:
        accumulator = self.three_batches(2)
        a, b = accumulator.drain(0)
        accumulator.failed(a, 10)
        accumulator.answered(b)
        assert accumulator.drain(109) == []
        assert accumulator.next_deadline() == 110
        assert [batch.records for batch in accumulator.drain(110)] == [["a"], ["c"]]

    def test_a_flush_does_not_end_a_backoff(self) -> None:
        accumulator = self.three_batches(1)
        (a,) = accumulator.drain(0)
        accumulator.failed(a, 0)
        accumulator.flush(1)
        assert accumulator.drain(99) == []

    def test_a_batch_that_left_takes_no_more_records(self) -> None:
        accumulator: Accumulator[str] = Accumulator(Batching(linger_ms=0))
        accumulator.append(0, "a", 1, 0)
        (batch,) = accumulator.drain(0)
        accumulator.failed(batch, 0)
        accumulator.append(0, "b", 1, 1)
        assert batch.records == ["a"]

    def test_partitions_have_no_order_among_themselves(self) -> None:
        """The later record is written first: its batch is full, the other one lingers."""
        accumulator: Accumulator[str] = Accumulator(Batching(linger_ms=100, batch_size_bytes=50))
        accumulator.append("orders-0", "first, small", 10, 0)
        accumulator.append("orders-1", "second, large", 50, 1)
        assert [batch.records for batch in accumulator.drain(1)] == [["second, large"]]
        assert [batch.records for batch in accumulator.drain(100)] == [["first, small"]]

    def test_while_all_that_may_be_are_in_flight_only_an_answer_helps(self) -> None:
        accumulator = self.three_batches(1)
        (a,) = accumulator.drain(0)
        assert (accumulator.drain(10_000), accumulator.next_deadline()) == ([], None)
        accumulator.answered(a)
        assert accumulator.next_deadline() == 0

    @pytest.mark.parametrize("end", ["answered", "failed"])
    def test_a_batch_that_is_not_in_flight(self, end: str) -> None:
        accumulator = self.three_batches(1)
        (a,) = accumulator.drain(0)
        accumulator.answered(a)
        with pytest.raises(ValueError, match="not in flight"):
            accumulator.failed(a, 0) if end == "failed" else accumulator.answered(a)


steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "drain", "answer", "fail", "flush"]),
        st.integers(0, 2),
        st.integers(1, 40),
        st.integers(0, 4),
    ),
    max_size=60,
)


@given(
    limits=st.builds(
        Batching,
        linger_ms=st.integers(0, 10),
        batch_size_bytes=st.integers(1, 60),
        batch_records=st.none() | st.integers(1, 4),
        max_in_flight=st.integers(1, 3),
        retry_backoff_ms=st.integers(0, 5),
    ),
    steps=steps,
)
def test_nothing_is_lost_or_doubled_and_limits_hold(limits: Batching, steps: list[Any]) -> None:
    accumulator: Accumulator[int] = Accumulator(limits)
    sizes: dict[int, int] = {}
    homes: dict[int, int] = {}
    in_flight: list[Batch[int]] = []
    written: dict[int, list[int]] = {0: [], 1: [], 2: []}
    now = 0

    def take() -> None:
        leaving = accumulator.drain(now)
        for batch in leaving:
            assert len(batch.records) == 1 or sum(sizes[record] for record in batch.records) <= limits.batch_size_bytes
            assert limits.batch_records is None or len(batch.records) <= limits.batch_records
        in_flight.extend(leaving)
        for partition in written:
            assert sum(batch.partition == partition for batch in in_flight) <= limits.max_in_flight
        due = accumulator.next_deadline()
        assert due is None or due > now

    def land(place: int, fails: bool) -> None:
        batch = in_flight.pop(place % len(in_flight))
        if fails:
            accumulator.failed(batch, now)
        else:
            written[batch.partition].extend(batch.records)  # type: ignore[index]
            accumulator.answered(batch)

    for what, partition, size, passed in steps:
        now += passed
        if what == "append":
            record = len(sizes)
            sizes[record], homes[record] = size, partition
            accumulator.append(partition, record, size, now)
        elif what == "flush":
            accumulator.flush(now)
        elif what == "drain":
            take()
        elif in_flight:
            land(size, fails=what == "fail")

    for _ in range(4 * len(steps) + 4):
        now = max(now, accumulator.next_deadline() or now)
        take()
        while in_flight:
            land(0, fails=False)
    assert accumulator.waiting() == 0
    for partition, records in written.items():
        mine = [record for record, home in homes.items() if home == partition]
        assert sorted(records) == mine
        if limits.max_in_flight == 1:
            assert records == mine


@pytest.mark.parametrize(
    ("name", "value"),
    [("linger_ms", -1), ("batch_size_bytes", 0), ("batch_records", 0), ("max_in_flight", 0), ("retry_backoff_ms", -1)],
)
def test_limits_that_cannot_be(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        Batching(**{name: value})
