"""Requirements that cut the network: `run` gives the cluster one of its own, or they are skipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linearizability.faults.sandbox import obstacle
from linearizability.targets.interposer.building import obstacle as interposer_obstacle

REPOSITORY = Path(__file__).parents[2]


def judged(folder: Path, id: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """A requirement on three nodes: the exit code, and the requirement's own line."""
    command = [sys.executable, "-m", "tidegauge", "run", "--target", "reference:3", id, *arguments]
    done = subprocess.run(
        [*command, "--json", "--results", str(folder)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, next(line for line in lines if line.get("id") == id)


@pytest.mark.sampled(days=3)
@pytest.mark.timeout(300)
def test_a_leader_is_cut_off(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    code, line = judged(tmp_path, "ELE-10")
    assert (code, line["verdict"]) == (0, "pass"), line


@pytest.mark.sampled(days=3)
@pytest.mark.timeout(300)
def test_quotas_are_for_the_address_that_clients_have_there(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    code, line = judged(tmp_path, "QTA-50", "--backend", "netns")
    assert (code, line["verdict"]) == (0, "pass"), line


@pytest.mark.sampled(days=3)
@pytest.mark.timeout(300)
def test_nodes_with_a_network_of_their_own_can_lose_power_too(tmp_path: Path) -> None:
    if reason := obstacle() or interposer_obstacle():
        pytest.skip(reason)
    code, line = judged(tmp_path, "RET-08", "--backend", "netns")
    assert (code, line["verdict"]) == (0, "pass"), line


@pytest.mark.timeout(300)
def test_without_a_network_it_is_skipped(tmp_path: Path) -> None:
    code, line = judged(tmp_path, "ELE-10", "--backend", "plain")
    assert (code, line["verdict"]) == (2, "not judged"), line
    assert "partition and heal" in line["reason"]
