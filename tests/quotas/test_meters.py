"""How long a client waits: the sums of Kafka's Rate and TokenBucket."""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from reference.protocol.primitives import TimestampMs
from reference.quotas.meters import Rate, TokenBucket, Windows
from tests.workload.kafka_decides import kafka_decides

WINDOWS = Windows(11, 1000)
SPAN_MS = WINDOWS.number * WINDOWS.size_ms
START = TimestampMs(0)


def test_a_first_amount_counts_over_all_windows_but_the_one_that_begins() -> None:
    rate = Rate(WINDOWS)
    rate.add(20_000, START)
    assert rate.throttle_ms(2000, START) == 0
    assert rate.throttle_ms(1000, START) == 10_000  # 2,000 a second over 10 s, twice what may be
    assert rate.throttle_ms(1000, TimestampMs(4500)) == 10_000 - 500  # over 10.5 s
    assert rate.throttle_ms(1000, TimestampMs(SPAN_MS)) == 0


def test_an_amount_can_be_subtracted_again() -> None:
    rate = Rate(WINDOWS)
    rate.add(5000, START)
    rate.add(-5000, START)
    assert rate.throttle_ms(1, START) == 0


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 100_000)), max_size=30), st.integers(1, 10_000))
def test_after_the_wait_and_all_windows_a_client_is_served_again(uses: list[tuple[int, int]], limit: int) -> None:
    rate, bucket, now = Rate(WINDOWS), TokenBucket(WINDOWS), START
    for pause_ms, amount in uses:
        now = TimestampMs(now + pause_ms)
        rate.add(amount, now)
        bucket.take(amount, limit, now)
    assert rate.throttle_ms(limit, TimestampMs(now + SPAN_MS + WINDOWS.size_ms)) == 0
    assert bucket.throttle_ms(limit, TimestampMs(now + bucket.throttle_ms(limit, now) + 1)) == 0


@given(st.integers(1, 1000), st.integers(0, 100_000))
def test_a_bucket_is_full_at_first_and_may_be_emptied_below_zero(limit: int, amount: int) -> None:
    bucket = TokenBucket(WINDOWS)
    burst = limit * SPAN_MS // 1000
    bucket.take(amount, limit, START)
    waits = bucket.throttle_ms(limit, START)
    assert (waits > 0) == (amount > burst)
    assert abs(waits - max(0, amount - burst) * 1000 / limit) <= 1


def draw_uses(seed: int) -> dict[str, Any]:
    """A client's uses, often at the borders of windows; some are subtracted again, as for a throttled fetch."""
    chance = random.Random(seed)
    number, seconds = chance.choice([1, 2, 3, 11]), chance.choice([1, 2])
    now, uses = 1_700_000_000_000, list[list[int]]()
    for _ in range(40):
        now += chance.choice(
            [0, 0, 1, 10, 300, 999, 1000, 1000 * seconds, 1000 * seconds * number, chance.randint(1, 9_000)]
        )
        amount = chance.randint(1, 100) * chance.choice([1, 1, 100])
        uses.append([now, amount])
        if chance.random() < 0.2:
            uses.append([now, -amount])
    limit = chance.choice([1, 7, 100, 1000])
    return {"limit": limit, "windows": [number, seconds], "is_bucket": chance.random() < 0.4, "uses": uses}


def our_throttles(drawn: dict[str, Any]) -> list[int]:
    number, seconds = drawn["windows"]
    windows, limit = Windows(number, seconds * 1000), drawn["limit"]
    rate, bucket, throttles = Rate(windows), TokenBucket(windows), list[int]()
    for at, amount in drawn["uses"]:
        now = TimestampMs(at)
        if drawn["is_bucket"]:
            bucket.take(amount, limit, now)
        else:
            rate.add(amount, now)
        throttles.append((bucket if drawn["is_bucket"] else rate).throttle_ms(limit, now))
    return throttles


@pytest.mark.java
def test_throttle_times_are_kafkas() -> None:
    drawn = [draw_uses(seed) for seed in range(500)]
    theirs = kafka_decides(drawn)
    differing = [(seed, each) for seed, each in enumerate(drawn) if our_throttles(each) != theirs[seed]]
    assert not differing, (len(differing), differing[0], theirs[differing[0][0]], our_throttles(differing[0][1]))
