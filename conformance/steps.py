"""Helpers that take a step of which a basic requirement speaks: what fails there is that requirement's business."""

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
"""The requirements that speak of helpers' steps: they are judged before all others."""


def built_on(id: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A helper whose failure is the business of a basic requirement: the first such helper that is met names it.

    A step that the target does not survive is not taken again: it fails at once, in all requirements but its own.
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
    """A failure that is an error code."""
    failure = Failed(seen)
    failure.code = code
    return failure


@contextmanager
def directly() -> Generator[None]:
    """What fails in here, and in no helper's step, is blocked by nothing: what the requirement builds on was not used yet."""
    try:
        yield
    except Failed as failure:
        failure.direct = not failure.built_on
        raise


OF_ANOTHER_EPOCH = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@contextmanager
def refused_by_epoch(id: str) -> Generator[None]:
    """A step of a producer that no other one has replaced: what refuses it by its epoch is the business of this requirement.

    TXN-01 speaks of writes: another transactional id may have the same producer id. TXN-29 speaks of the first partition of a
    transaction: the end of the one before may have raised the epoch, which EndTxn below v5 does not return.
    """
    try:
        yield
    except Failed as failure:
        if failure.code in OF_ANOTHER_EPOCH:
            failure.built_on = id  # also where a helper named a step that is less than this one: writing, for one
        raise
