"""What must be done while a frozen follower is still in sync: for a moment, and again where the machine was too slow for it."""

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

    def keeps(self, nodes: Nodes, topic: Topic, *followers: int) -> bool:
        """Whether the frozen followers are in sync still. Asked last: what was seen before it was seen while they were.

        A busy machine's controller may fence a follower sooner: then what was seen proves nothing.
        """
        return self.lasts and {*followers} <= nodes.state(topic).isr


def in_time(broker: Broker, once: Callable[[], bool], *, failures: int = 1) -> None:
    """Try what needs a moment until it was there: `once` says whether it was. Skips where the machine is too slow.

    So many attempts must fail: two where a follower that is fenced just then looks like a failure, and the node that is asked
    learns of it late. What failed once and held later is tolerated, with the failure.
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
