"""Helpers whose step a basic requirement is about: that requirement judges a failure in the step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from conformance.wire import Failed
from reference.protocol.errors import ErrorCode

T = TypeVar("T")
P = ParamSpec("P")

STEPS: set[str] = set()
"""The requirements about helpers' steps: they are judged before all others."""


def built_on(id: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a helper whose step a basic requirement is about. The innermost decorated helper names that requirement in a
    failure.

    A step that crashed the target is not repeated: it fails at once, in all requirements but its own.
    """
    STEPS.add(id)

    def decorate(helper: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(helper)
        def guarded(*args: P.args, **options: P.kwargs) -> T:
            broker: Any = getattr(args[0], "broker", args[0])
            try:
                if id in broker.subject.profile.deadly and id != broker.requirement.id:
                    raise Failed(f"the target does not survive {id}")
                return helper(*args, **options)
            except Failed as failure:
                failure.built_on = failure.built_on or id
                raise

        return guarded

    return decorate


def refused(seen: str, code: int) -> Failed:
    """A failure because of an error code."""
    failure = Failed(seen)
    failure.code = code
    return failure


@contextmanager
def directly() -> Generator[None]:
    """Mark a failure within the block, outside of helpers' steps, as direct: nothing blocks it, as no dependency was used
    yet."""
    try:
        yield
    except Failed as failure:
        failure.direct = not failure.built_on
        raise


OF_ANOTHER_EPOCH = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@contextmanager
def refused_by_epoch(id: str) -> Generator[None]:
    """Attribute a refusal by epoch within the block to this requirement, as no other producer has replaced this one.

    TXN-01 is about writes: another transactional id may have the same producer id. TXN-29 is about the first partition of a
    transaction: the end of the one before may have raised the epoch, which EndTxn below v5 does not return.
    """
    try:
        yield
    except Failed as failure:
        if failure.code in OF_ANOTHER_EPOCH:
            failure.built_on = id  # also where a helper named a more general step, such as writing
        raise


@contextmanager
def about(id: str) -> Generator[None]:
    """Attribute every failure within the block to this requirement: TXV-02 is about the aborted transactions that Fetch lists,
    ACK-12 about codecs."""
    try:
        yield
    except Failed as failure:
        failure.built_on = id
        raise
