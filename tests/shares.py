"""Shares of long families of like tests: in CI (`CI` is set) one part of each, by the date, and all of them in so many days.

`@pytest.mark.sampled(days=4)` on a parametrized test: each of its cases runs on one day of four; with `together=True` all cases of
a file that are marked so run on the same day, for they share what is expensive. Plain pytest and `make test-slow` leave nothing out. What breaks a case is seen in CI up to
so many days later, so a change of what such a test judges is tried with all of it.
"""

import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import pytest

DAY = "TESTS_OF_DAY"
"""The day's number, set by the first process, so that workers that start after midnight collect the same tests."""
LONGEST_DAYS = 7

Item = TypeVar("Item")


def day() -> int | None:
    """The number of the day whose share runs; None where all do."""
    if not os.environ.get("CI"):
        return None
    return int(os.environ.setdefault(DAY, str(datetime.now(UTC).toordinal())))


def share(items: Sequence[Item], days: int, name: str = "") -> Sequence[Item]:
    """Today's of `days` like shares of the items, each of which is in one. `name` parts families that would else fall on one day."""
    assert 1 <= days <= LONGEST_DAYS, "everything is checked once a week"
    today = day()
    return items if today is None else items[(today + zlib.crc32(name.encode())) % days :: days]


def without_other_days(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take the cases of other days out of a collection, and return them."""
    families = defaultdict[tuple[str, int], list[list[pytest.Item]]](list)
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            is_together = mark.kwargs.get("together", False)
            family = families[item.nodeid.partition("::" if is_together else "[")[0], mark.kwargs["days"]]
            if is_together and family:
                family[0].append(item)
            else:
                family.append([item])
    todays = {
        id(item) for (name, days), cases in families.items() for case in share(cases, days, name) for item in case
    }
    others = [item for cases in families.values() for case in cases for item in case if id(item) not in todays]
    left_out = {id(item) for item in others}
    items[:] = [item for item in items if id(item) not in left_out]
    return others


def how_to_run(item: pytest.Item) -> str:
    """What a failure of a sampled test says."""
    mark = item.get_closest_marker("sampled")
    assert mark is not None
    return (
        f"CI runs this case on one day of {mark.kwargs['days']}: what broke it may be so old.\n"
        f"All cases: env -u CI .venv/bin/python -m pytest {item.nodeid.partition('[')[0]}\n"
        f"This one:  env -u CI .venv/bin/python -m pytest '{item.nodeid}'"
    )
