"""Observations that need a frozen follower to be still in sync: they have little time, and are repeated on a slow machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.broker import Broker
from conformance.placing import Nodes
from conformance.wire import Failed
from linearizability.client.requests import Topic

LAG_MS = 3_000
"""The replica.lag.time.max.ms of targets whose nodes are frozen."""
MOMENT_S = (LAG_MS - 700) / 1000
"""How long a follower stays in the ISR after it froze in sync; its last fetch may be half a second old."""
ATTEMPTS = 4
"""The most attempts of an observation for which the machine was too slow."""


@dataclass
class Moment:
    """The time since followers froze."""

    began_s: float = field(default_factory=time.monotonic)

    @property
    def lasts(self) -> bool:
        """Whether the frozen followers are certainly still in the ISRs."""
        return time.monotonic() - self.began_s < MOMENT_S

    def keeps(self, nodes: Nodes, topic: Topic, *followers: int) -> bool:
        """Whether the frozen followers are still in sync. Call it last: if True, all earlier observations were made while
        they were.

        The controller of a busy machine may fence a follower sooner. Then the observations prove nothing.
        """
        return self.lasts and {*followers} <= nodes.state(topic).isr


def in_time(broker: Broker, once: Callable[[], bool], *, failures: int = 1) -> None:
    """Repeat `once` until it returns True, that is, until its observation was made in time. Skips where the machine is too
    slow.

    Fails after `failures` failed attempts: two where a follower that is fenced at that moment looks like a failure. An
    observation that failed once and held later is tolerated.
    """
    failed: list[str] = []
    for _ in range(ATTEMPTS):
        try:
            if once():
                if failed:
                    broker.tolerate(f"it holds in one attempt, and not in another: {failed[0]}")
                return
        except Failed as failure:
            failed.append(str(failure))
            if len(failed) >= failures:
                raise
    slow = f"the machine was too slow {ATTEMPTS - len(failed)} times for what must be done while a frozen follower is in sync"
    broker.skip("; ".join([slow, *(f"another attempt failed: {failure}" for failure in failed)]))
