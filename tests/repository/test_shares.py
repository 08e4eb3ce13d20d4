"""In CI a long family runs in parts, and all of it in so many days; without `CI` it runs whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import shares
from tests.repository.carry import ROOT
from tests.shares import share, without_other_days


class Case:
    """A test item as `tests/shares.py` uses it."""

    def __init__(self, nodeid: str, days: int = 0, **more: bool) -> None:
        self.nodeid = nodeid
        self.mark = pytest.mark.sampled(days=days, **more).mark if days else None

    def get_closest_marker(self, name: str) -> object:
        return self.mark


CASES = [
    *(Case(f"a.py::test_many[{number}]", 3) for number in range(7)),
    *(Case(f"a.py::test_few[{number}]", 5) for number in range(2)),
    Case("a.py::test_always"),
    *(Case(f"b.py::{name}", 3, together=True) for name in ("test_one", "test_two[0]", "test_two[1]")),
]


def of_day(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv(shares.DAY, str(number))
    items = [*CASES]
    others = without_other_days(items)  # type: ignore[arg-type]
    assert {*items, *others} == {*CASES} and len(items) + len(others) == len(CASES)
    assert items == [case for case in CASES if case in items]
    return [case.nodeid for case in items]


@pytest.mark.parametrize("first", [700, 739_000])
def test_each_case_runs_once_in_so_many_days(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    days = [of_day(monkeypatch, first + number) for number in range(15)]
    for case in CASES:
        every = case.mark.kwargs["days"] if case.mark else 1
        assert sum(case.nodeid in names for names in days) == 15 // every
    assert {sum(name.startswith("b.py") for name in names) for names in days} == {0, 3}
    monkeypatch.delenv("CI")
    assert without_other_days([*CASES]) == []  # type: ignore[arg-type]


def test_seeds_are_shared_out_by_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert share(range(7), 3) == range(7)
    monkeypatch.setenv("CI", "1")
    found: list[int] = []
    for day in range(700, 703):
        monkeypatch.setenv(shares.DAY, str(day))
        found += share(range(7), 3)
    assert sorted(found) == [*range(7)]
    with pytest.raises(AssertionError, match="once a week"):
        share(range(7), 8)


FAILING = """
import pytest

@pytest.mark.sampled(days=2)
@pytest.mark.parametrize("case", range(2))
def test_it(case):
    assert case < 0
"""


def test_a_failure_says_how_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CI": "1", shares.DAY: "700"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "1 failed, 1 deselected" in done.stdout
    assert "env -u CI .venv/bin/python -m pytest 'test_failing.py::test_it[" in done.stdout
