"""Wait until a condition of a reproduction holds."""

import time
from collections.abc import Callable

BETWEEN_LOOKS_S = 0.5


def await_true(condition: Callable[[], bool], within_s: float) -> bool:
    """Whether a condition becomes true in time; checks it twice a second."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(BETWEEN_LOOKS_S)
    return False
