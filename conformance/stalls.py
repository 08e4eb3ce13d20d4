"""How long the machine did not run the suite: a machine without free memory or processors delays brokers as well."""

import os
import time

STALL_S = 0.5
"""A look that comes later than planned by this much counts as delayed."""
BUSY_LOAD = 4.0
"""The load for each processor from which brokers are delayed for seconds; they need more processor time than the suite."""


class Stalls:
    """Measures how much later than every `every_s` seconds `look` is called."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.last_s = time.monotonic()
        self.lost_s = 0.0
        """The sum of all delays."""
        self.is_busy = False
        """Whether the load was above BUSY_LOAD at a look."""

    def look(self) -> None:
        now_s = time.monotonic()
        late_s = now_s - self.last_s - self.every_s
        self.last_s = now_s
        if late_s >= STALL_S:
            self.lost_s += late_s
        self.is_busy |= os.getloadavg()[0] > BUSY_LOAD * (os.cpu_count() or 1)
