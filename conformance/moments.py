"""What must be done while a frozen follower is still in sync: for a moment, and again where the machine was too slow for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.broker import Broker
from conformance.wire import Failed

LAG_MS = 3_000
"""The replica.lag.time.max.ms of targets whose nodes are frozen."""
MOMENT_S = (LAG_MS - 700) / 1000
"""For so long a follower that was in sync when it froze is still in the ISR; its last fetch may be half a second old."""
ATTEMPTS = 4
"""How often what needs a moment in time is tried where the machine was too slow for it."""


@dataclass
class Moment:
    """The time since followers froze."""

    began_s: float = field(default_factory=time.monotonic)

    @property
    def lasts(self) -> bool:
        """Whether they are in the ISRs for certain."""
        return time.monotonic() - self.began_s < MOMENT_S


def in_time(broker: Broker, once: Callable[[], bool], *, failures: int = 1) -> None:
    """Try what needs a moment until it was there: `once` says whether it was. Skips where the machine is too slow.

    So many attempts must fail: two where a frozen follower that is fenced just then, as on a busy machine, looks like a failure.
    """
    for _ in range(ATTEMPTS):
        try:
            if once():
                return
        except Failed as failure:
            failures -= 1
            if not failures:
                raise
            broker.saw(f"in one attempt: {failure}")
    broker.skip(f"the machine was too slow {ATTEMPTS} times for what must be done while a frozen follower is in sync")
