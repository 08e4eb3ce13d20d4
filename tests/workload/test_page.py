"""The page's tables are what the modules give."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import linearizability.workload
from linearizability.workload.assignment import ASSIGNORS
from linearizability.workload.assignment import comparison as assignors_compared
from linearizability.workload.partitioning import comparison as partitioners_compared
from linearizability.workload.partitioning.comparison import CUSTOMERS, outcome, partitioners

PAGE = Path(linearizability.workload.__file__).with_name("README.md")


@pytest.mark.parametrize(
    ("name", "table"), [("assignment", assignors_compared.table), ("batching", partitioners_compared.table)]
)
def test_the_tables_are_as_generated(name: str, table: Callable[[], str]) -> None:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == table(), f"put what {table.__module__}.table() gives into the page"


def test_the_files_that_it_names_are_there() -> None:
    named = set(re.findall(r"\]\(([a-z0-9_/]+\.py)\)|`([a-z_]+\.py)`", PAGE.read_text()))
    assert len(named) >= 6
    assert [name for pair in named for name in pair if name and not (PAGE.parent / name).exists()] == []


def test_what_the_page_says_of_assignors() -> None:
    reported = {name: assignors_compared.history(assign) for name, assign in ASSIGNORS.items()}
    assert [each.imbalance for each in reported["range"]] == [2, 0, 2]
    assert max(each.imbalance for name in ("roundrobin", "sticky") for each in reported[name]) == 1
    moved = {name: sum(each.moved for each in generations) for name, generations in reported.items()}
    assert moved["sticky"] < moved["range"] < moved["roundrobin"]


def test_what_the_page_says_of_partitioners() -> None:
    found = {(name, linger): outcome(choose, linger) for linger in (5, 50) for name, choose in partitioners().items()}
    assert [found[name, 5].in_order for name in ("by key", "round robin", "sticky")] == [CUSTOMERS, 0, 0]
    assert found["sticky", 5].batches < found["by key", 5].batches < found["round robin", 5].batches
    assert all(found[name, 50].batches < found[name, 5].batches for name in partitioners())
