"""What a client has used, and how long it must wait until that is what its quota allows.

Source: org.apache.kafka.common.metrics.stats.Rate and TokenBucket; org.apache.kafka.server.quota.QuotaUtils; KIP-13, KIP-599.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reference.protocol.primitives import AT_ONCE, TimestampMs


@dataclass(frozen=True, slots=True)
class Windows:
    """quota.window.num windows of quota.window.size.seconds each."""

    number: int
    size_ms: int


@dataclass(slots=True)
class Rate:
    """An amount a second, over the windows that are not too old."""

    windows: Windows
    _samples: list[list[float]] = field(default_factory=list[list[float]])
    """Start in ms, and amount, the oldest first."""

    def add(self, amount: float, now: TimestampMs) -> None:
        if not self._samples or now - self._samples[-1][0] >= self.windows.size_ms:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        self._forget_old(now)

    def _forget_old(self, now: TimestampMs) -> None:
        oldest = now - self.windows.number * self.windows.size_ms
        while self._samples and self._samples[0][0] <= oldest:
            del self._samples[0]

    def is_idle(self, now: TimestampMs) -> bool:
        """Whether nothing that it has counted counts any more."""
        self._forget_old(now)
        return not self._samples

    def _window_ms(self, now: TimestampMs) -> float:
        """The time that the samples stand for: all windows but the one that has just begun, at the least."""
        elapsed = now - self._samples[0][0]
        missing = self.windows.number - 1 - elapsed // self.windows.size_ms
        return (elapsed + max(0, missing) * self.windows.size_ms) or self.windows.size_ms

    def throttle_ms(self, limit: float, now: TimestampMs) -> int:
        """How long nothing may be added until the rate is `limit` a second; 0 where it is not above that."""
        self._forget_old(now)
        if not self._samples:
            return 0
        window_ms = self._window_ms(now)
        used = sum(amount for _, amount in self._samples) * 1000 / window_ms
        if used <= limit:
            return 0
        return (
            max(1, round((used - limit) / limit * window_ms))
            if limit > 0
            else self.windows.number * self.windows.size_ms
        )


@dataclass(slots=True)
class TokenBucket:
    """Credits that come back with time. Below zero nothing is allowed; what is allowed may lead there (KIP-599)."""

    windows: Windows
    _tokens: float | None = None
    """None before the first use: the bucket is full."""
    _as_of: TimestampMs = AT_ONCE

    def _refill(self, limit: float, now: TimestampMs) -> float:
        burst = self.windows.number * self.windows.size_ms / 1000 * limit
        tokens = burst if self._tokens is None else self._tokens + limit * (now - self._as_of) / 1000
        self._tokens, self._as_of = min(burst, tokens), now
        return self._tokens

    def take(self, amount: float, limit: float, now: TimestampMs) -> None:
        self._tokens = self._refill(limit, now) - amount

    def throttle_ms(self, limit: float, now: TimestampMs) -> int:
        """How long until there are credits again; 0 where there are."""
        tokens = self._refill(limit, now)
        if tokens >= 0:
            return 0
        return max(1, round(-tokens / limit * 1000)) if limit > 0 else self.windows.number * self.windows.size_ms
