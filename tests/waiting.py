"""Waits for a condition, and not for a time: on a busy machine it comes later, and is no other one."""

import time
from collections.abc import Callable

WITHIN_S = 90.0
EVERY_S = 0.1


def await_true(condition: Callable[[], bool], what: str | Callable[[], str] = "the condition") -> None:
    """Ask until it holds; after WITHIN_S the test fails, and says what never came."""
    until = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < until, f"never came: {what if isinstance(what, str) else what()}"
        time.sleep(EVERY_S)
