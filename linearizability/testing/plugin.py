"""The pytest plugin: one node, three nodes, and a history, each for one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from linearizability.testing import History, reference_broker

if TYPE_CHECKING:
    from linearizability.targets import Target


@pytest.fixture
def tidegauge_broker() -> Iterator[Target]:
    """One node of the reference for this test."""
    with reference_broker() as broker:
        yield broker


@pytest.fixture
def tidegauge_cluster() -> Iterator[Target]:
    """Three nodes of the reference for this test."""
    with reference_broker(nodes=3) as broker:
        yield broker


@pytest.fixture
def tidegauge_history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    """A history of what this test's clients see on its broker, the cluster where it has one."""
    name = "tidegauge_cluster" if "tidegauge_cluster" in request.fixturenames else "tidegauge_broker"
    return History(request.getfixturevalue(name), tmp_path / "history")
