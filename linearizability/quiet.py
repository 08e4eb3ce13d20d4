"""What is said while work goes on: with `tidegauge --quiet COMMAND`, or TIDEGAUGE_QUIET=1, results and errors alone."""

import os

VARIABLE = "TIDEGAUGE_QUIET"


def quiet() -> bool:
    """Whether results and errors alone are to be said. Child processes inherit it."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


LEAST_SHARE = 0.1
"""Before so much is done nothing is estimated."""


def time_left(share: float, seconds: float) -> str:
    """How long the rest takes if it goes on as until now, to be put behind what was said; empty while that is a guess."""
    if not LEAST_SHARE <= share < 1:
        return ""
    left = seconds * (1 - share) / share
    return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"
