"""How late the node's timer is: for so long the node has received nothing.

The event loop, or the simulated process, sets a timer for the node's next deadline. A timer that is late was kept waiting by a
step that took long, or by a pause of the process. Heartbeats that arrived meanwhile are received later than they came, and no
session may end because of that.
"""

from reference.protocol.primitives import AT_ONCE, NEVER, TimestampMs

LATE_MS = 200
"""A timer that is later than this was kept waiting."""


class Lateness:
    """When the timer is due. Times are milliseconds of the node's clock."""

    def __init__(self) -> None:
        self._step_began = AT_ONCE
        self._due_at = NEVER

    def begin_step(self, now: TimestampMs) -> int:
        """Returns how many milliseconds the timer is late, 0 if it is not; from now on only later ones count."""
        self._step_began = now
        late_ms = now - self._due_at
        if late_ms < LATE_MS:
            return 0
        self._due_at = now
        return late_ms

    def timer_set(self, deadline: TimestampMs) -> None:
        """Note the timer's time. A deadline that was over when the step began is due since then, not since it was over."""
        self._due_at = max(deadline, self._step_began)

    def timer_fired(self) -> None:
        """There is no timer until it is set again."""
        self._due_at = NEVER
