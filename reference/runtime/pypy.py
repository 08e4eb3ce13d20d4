"""Settings of PyPy's compiler and collector; on CPython the functions do nothing.

PyPy compiles what is executed often, and a node's requests take many ways: with PyPy's own settings three nodes need thousands
of requests until they are fast.

PyPy's objects end when they are collected, CPython's when the last reference goes. A node relies on that in one place: the
descriptor of a removed segment is closed with the last object that reads from it, and until then the system keeps the file's
space. PyPy collects while a node allocates, so a node without work would keep such files for ever.
"""

import asyncio
import gc
import sys

IS_PYPY = sys.implementation.name == "pypy"
COMPILER = "threshold=200,function_threshold=300,trace_eagerness=40,decay=0"
"""How often a loop, a function and a branch of compiled code are passed until they are compiled, a fifth of PyPy's own numbers;
nothing that was counted is forgotten. Measured in reference/SPEED.md."""
COLLECT_EVERY_S = 30.0
STEP_EVERY_S = 0.01
"""Between the steps of one collection: requests are served between them."""


def compile_early() -> None:
    """Have PyPy compile what is executed a few hundred times."""
    if IS_PYPY:
        from pypyjit import set_param  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

        set_param(COMPILER)


def collect_in_steps(loop: asyncio.AbstractEventLoop) -> None:
    """Have PyPy's collector go through all objects every 30 seconds, some at a time."""
    if not IS_PYPY:
        return

    def step() -> None:
        is_done = gc.collect_step().major_is_done  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        loop.call_later(COLLECT_EVERY_S if is_done else STEP_EVERY_S, step)

    loop.call_later(COLLECT_EVERY_S, step)
