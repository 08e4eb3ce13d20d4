"""The usage of a client, and its throttle time under a quota.

Source: org.apache.kafka.common.metrics.stats.Rate and TokenBucket; org.apache.kafka.server.quota.QuotaUtils; KIP-13, KIP-599.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor

from reference.protocol.primitives import AT_ONCE, TimestampMs


@dataclass(frozen=True, slots=True)
class Windows:
    """quota.window.num windows of quota.window.size.seconds each."""

    number: int
    size_ms: int


@dataclass(slots=True)
class Sample:
    """The usage in one window."""

    start: TimestampMs
    last_use: TimestampMs
    amount: float = 0.0

    def restart(self, now: TimestampMs) -> None:
        self.start = self.last_use = now
        self.amount = 0.0


@dataclass(slots=True)
class Rate:
    """The rate per second, over the windows that are recent enough.

    A sample counts until its last use is as long ago as all windows together, so there is one more sample than windows.
    """

    windows: Windows
    _samples: list[Sample] = field(default_factory=list[Sample])
    """A ring of at most `windows.number` + 1 samples."""
    _current: int = 0

    def add(self, amount: float, now: TimestampMs) -> None:
        sample = self._sample(now)
        sample.amount += amount
        sample.last_use = now

    def _sample(self, now: TimestampMs) -> Sample:
        if not self._samples:
            self._samples.append(Sample(now, now))
        sample = self._samples[self._current]
        if now - sample.start < self.windows.size_ms:
            return sample
        self._current = (self._current + 1) % (self.windows.number + 1)
        if self._current == len(self._samples):
            self._samples.append(Sample(now, now))
        sample = self._samples[self._current]
        sample.restart(now)
        return sample

    def _is_old(self, sample: Sample, now: TimestampMs) -> bool:
        return now - sample.last_use >= self.windows.number * self.windows.size_ms

    def is_idle(self, now: TimestampMs) -> bool:
        """Whether every sample is too old to count."""
        return all(self._is_old(each, now) for each in self._samples)

    def _window_ms(self, now: TimestampMs) -> float:
        """The duration that the samples cover, at least all windows but the one that has just begun."""
        elapsed = now - min(each.start for each in self._samples)
        missing = self.windows.number - 1 - elapsed // self.windows.size_ms
        return max(1, elapsed + max(0, missing) * self.windows.size_ms)

    def throttle_ms(self, limit: float, now: TimestampMs) -> int:
        """How long nothing may be added until the rate is `limit` per second; 0 if it is not above the limit."""
        if not self._samples:
            return 0
        for each in self._samples:
            if self._is_old(each, now):
                each.restart(now)
        window_ms = self._window_ms(now)
        used = sum(each.amount for each in self._samples) / (window_ms / 1000)
        if used <= limit:
            return 0
        if limit <= 0:
            return self.windows.number * self.windows.size_ms
        return floor((used - limit) / limit * window_ms + 0.5)


@dataclass(slots=True)
class TokenBucket:
    """Tokens that refill with time. Below zero tokens a client is throttled; an allowed operation may go below zero (KIP-599)."""

    windows: Windows
    _tokens: float | None = None
    """None before the first use, when the bucket is full."""
    _as_of: TimestampMs = AT_ONCE

    def _refill(self, limit: float, now: TimestampMs) -> float:
        burst = self.windows.number * self.windows.size_ms / 1000 * limit
        tokens = burst if self._tokens is None else self._tokens + limit * (now - self._as_of) / 1000
        self._tokens, self._as_of = min(burst, tokens), now
        return self._tokens

    def take(self, amount: float, limit: float, now: TimestampMs) -> None:
        self._tokens = self._refill(limit, now) - amount

    def throttle_ms(self, limit: float, now: TimestampMs) -> int:
        """The time until the bucket has at least zero tokens; 0 if it has."""
        tokens = self._refill(limit, now)
        if tokens >= 0:
            return 0
        return max(1, round(-tokens / limit * 1000)) if limit > 0 else self.windows.number * self.windows.size_ms
