"""How Hypothesis draws: no deadlines, for a busy machine breaks them; and in CI the same examples every time.

A run of CI judges a change, not the luck of the day. `make test` by hand and `make test-slow` draw anew each time: what they
find becomes a test of its own.

A test that is marked with a step of the specification (`spec/TRACEABILITY.md`) fails if it does not call the step's method.
"""

import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("anew", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "anew")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Notes what a marked test calls, by file and name."""
    steps = [(mark.args[0], name) for mark in pyfuncitem.iter_markers("step") for name in mark.args[1:]]
    if not steps:
        return (yield)
    from spec.traceability import is_taken, method_of

    if not any(method_of(step, book)[1] for book, step in steps):
        return (yield)
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name.removeprefix("_")))

    sys.setprofile(note)
    try:
        result = yield
    finally:
        sys.setprofile(None)
    assert not (untaken := [step for step in steps if not is_taken(*step, called)]), f"no step of this test: {untaken}"
    return result
