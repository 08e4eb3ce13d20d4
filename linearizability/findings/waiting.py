"""Wait for what a reproduction looks for."""

import time
from collections.abc import Callable

BETWEEN_LOOKS_S = 0.5


def await_true(condition: Callable[[], bool], within_s: float) -> bool:
    """Whether a condition became true in time, looked at twice a second."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(BETWEEN_LOOKS_S)
    return False
