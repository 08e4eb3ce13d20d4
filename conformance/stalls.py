"""How long the machine gave the suite no turn: one that has no memory or processor left holds brokers up as well."""

import time

STALL_S = 0.5
"""A look that comes so much later than it was to come was held up."""


class Stalls:
    """Looks that are to come every so often, each after a wait."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.last_s = time.monotonic()
        self.lost_s = 0.0
        """What looks were too late, all together."""

    def look(self) -> None:
        now_s = time.monotonic()
        late_s = now_s - self.last_s - self.every_s
        self.last_s = now_s
        if late_s >= STALL_S:
            self.lost_s += late_s
