"""PyPy's objects end when they are collected, CPython's when the last reference goes.

A node relies on that in one place: the descriptor of a removed segment is closed with the last object that reads from it, and
until then the system keeps the file's space. PyPy collects while a node allocates, so a node without work would keep such files
for ever.
"""

import asyncio
import gc
import sys

COLLECT_EVERY_S = 30.0
STEP_EVERY_S = 0.01
"""Between the steps of one collection: requests are served between them."""


def collect_in_steps(loop: asyncio.AbstractEventLoop) -> None:
    """Have PyPy's collector go through all objects every 30 seconds, some at a time; CPython needs none of this."""
    if sys.implementation.name != "pypy":
        return

    def step() -> None:
        is_done = gc.collect_step().major_is_done  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        loop.call_later(COLLECT_EVERY_S if is_done else STEP_EVERY_S, step)

    loop.call_later(COLLECT_EVERY_S, step)
