"""The node's one `now`: milliseconds that never run backward, and leap ahead only if the wall clock is far ahead.

A node has one time for two purposes: timestamps, which should be the wall clock's, and deadlines, which should know nothing
of a wall clock that is set. Apache Kafka keeps two clocks for them. Here `now` starts as the wall clock's time
and follows the monotonic clock. When the wall clock differs, `now` approaches it by running a tenth faster or slower: a fetch of
500 ms waits 450 to 550 ms, and a difference of a minute is corrected in ten.

`now` follows at once a wall clock that was set far ahead. A `now` that is an hour late would refuse producers' timestamps
(message.timestamp.after.max.ms), and a machine that slept so long has lost its clients' sessions anyway. `now` slows down for a
wall clock that was set far back: log append times must not fall. A restart begins with the wall clock's time again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from reference.protocol.primitives import TimestampMs

CHECK_NS = 1_000_000_000
"""How often the wall clock is read."""

SLEW_NS = CHECK_NS // 10
"""How much of a difference is corrected between two readings."""

TOLERATED_NS = 1_000_000
"""A difference that is not corrected. Also the longest duration of a reading: the process was suspended during a longer one."""

MAX_LAG_NS = 30 * 60 * 1_000_000_000
"""How far `now` may be behind before it leaps: half of what a producer's clock may be ahead of the broker's."""

Nanoseconds = Callable[[], int]


class Clock:
    """Wall time for one process, from the moment it is made."""

    def __init__(self, wall_ns: Nanoseconds = time.time_ns, monotonic_ns: Nanoseconds = time.monotonic_ns) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._anchored_at = monotonic_ns()
        self._anchor = wall_ns()
        """The value of `now`, in nanoseconds, when the monotonic clock showed `_anchored_at`."""
        self._slew = 0
        """Nanoseconds to gain on the monotonic clock within the CHECK_NS after the anchor; negative to lose."""

    def now(self) -> TimestampMs:
        """The time; no call returns less than the one before."""
        at = self._monotonic_ns()
        if at - self._anchored_at >= CHECK_NS:
            self._anchor_again(at)
        shown = self._shown(at) if self._slew else self._anchor + at - self._anchored_at
        return TimestampMs(shown // 1_000_000)

    def _shown(self, at: int) -> int:
        passed = at - self._anchored_at
        return self._anchor + passed + self._slew * min(passed, CHECK_NS) // CHECK_NS

    def _anchor_again(self, at: int) -> None:
        self._anchor, self._anchored_at = self._shown(at), at
        lag = self._wall_ns() - self._anchor
        looked_in_time = self._monotonic_ns() - at <= TOLERATED_NS
        if looked_in_time and lag > MAX_LAG_NS:
            self._anchor += lag
            lag = 0
        self._slew = max(-SLEW_NS, min(lag, SLEW_NS)) if looked_in_time and abs(lag) > TOLERATED_NS else 0
