"""How long the machine gave the suite no turn: one that has no memory or processor left holds brokers up as well."""

import os
import time

STALL_S = 0.5
"""A look that comes so much later than it was to come was held up."""
BUSY_LOAD = 4.0
"""So many processes that want to run, for each processor, hold brokers up for seconds, which need more turns than the suite."""


class Stalls:
    """Looks that are to come every so often, each after a wait."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.last_s = time.monotonic()
        self.lost_s = 0.0
        """What looks were too late, all together."""
        self.is_busy = False
        """Whether the machine was at a look."""

    def look(self) -> None:
        now_s = time.monotonic()
        late_s = now_s - self.last_s - self.every_s
        self.last_s = now_s
        if late_s >= STALL_S:
            self.lost_s += late_s
        self.is_busy |= os.getloadavg()[0] > BUSY_LOAD * (os.cpu_count() or 1)
