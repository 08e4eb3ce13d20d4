"""QTA: a client that exceeds its quota is slowed down to it."""

from __future__ import annotations

import time

from conformance.broker import Broker
from conformance.quotas import (
    APIS,
    CLIENT_ID,
    PRODUCE,
    acting_quota,
    client,
    counts_for_s,
    expect_throttled,
    produce,
)
from conformance.requirement import requirement

RATE = 20_000
"""The quota in bytes a second, and the size of a batch: each batch is worth one second of the quota."""
FOR_WINDOWS = 2
"""The number of windows. The bytes allowed without a wait use up one, so a client without a limit shows in the second one."""
MARGIN = 1.5


@requirement(
    "QTA-34",
    notices="operator: a client that never stops gets more than its share for ever, or is throttled ever longer for no reason",
    source="KIP-13, KIP-219; QuotaUtils.throttleTime; Rate.measure",
    sentence="A producer that goes on, and waits as long as it is throttled, comes down to producer_byte_rate: beyond what the "
    "windows hold at once it writes no more than that rate, and it is throttled for no longer than it owes.",
    accepted="over twice the time of all windows: no more bytes than 1.5 times the rate, and one filling of the windows; all "
    "throttle_time_ms together at most 1.5 times what the bytes take at the rate",
    since="2.6",
    apis=APIS,
    deadline_s=120.0,
)  # fmt: skip
def debt_paid(broker: Broker) -> None:
    topic, client_id, later = broker.topic(), broker.unused_name("client"), broker.unused_name("client")
    at_once_s = counts_for_s(broker)
    written = throttled_ms = 0
    quotas = {PRODUCE: float(RATE)}
    with acting_quota(broker, {CLIENT_ID: client_id}, quotas), acting_quota(broker, {CLIENT_ID: later}, {PRODUCE: 1.0}):
        expect_throttled(broker, lambda: produce(broker, later, topic, RATE).throttle_time_ms, "one with a later quota")
        connection, began = client(broker, client_id, topic), time.monotonic()
        while (passed_s := time.monotonic() - began) < FOR_WINDOWS * at_once_s:
            throttle_ms = produce(broker, client_id, topic, RATE, on=connection).throttle_time_ms
            written, throttled_ms = written + RATE, throttled_ms + throttle_ms
            passed_s = time.monotonic() - began
            most = RATE + MARGIN * RATE * (passed_s + at_once_s)
            broker.expect(written <= most, f"{written} bytes were written in {passed_s:.1f} s, and {most:.0f} may be")
            owed_ms = MARGIN * 1000 * written / RATE
            said = f"for {written} bytes it was throttled for {throttled_ms} ms, and may be for {owed_ms:.0f}"
            broker.expect(throttled_ms <= owed_ms, said)
            time.sleep(throttle_ms / 1000)
    if not throttled_ms:
        broker.skip("this machine was too slow to write more than the quota")
    broker.saw(f"{written} bytes in {passed_s:.1f} s, throttled for {throttled_ms / 1000:.1f} s")
