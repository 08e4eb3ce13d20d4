"""Schedules with scripts: their requirements, and how stored ones are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from linearizability.guided.schedule import GuidedSchedule, read_schedule
from linearizability.guided.scripts import QuorumScript
from linearizability.simulation.schedule import Schedule


def test_a_script_needs_brokers_that_do_not_vote() -> None:
    script = {"topic": "orders", "brokers": [1, 2], "steps": []}
    with pytest.raises(ValidationError, match="do not vote"):
        GuidedSchedule.model_validate({"nodes": 3, "voters": [2], "script": script})


def test_a_script_of_the_quorum_needs_all_voters() -> None:
    with pytest.raises(ValidationError, match="all voters"):
        GuidedSchedule.model_validate({"nodes": 3, "script": {"voters": [1, 2], "steps": []}})
    assert GuidedSchedule.model_validate({"nodes": 3, "script": {"voters": [1, 2, 3], "steps": []}})


def test_the_least_min_isr_is_that_of_the_script_too() -> None:
    step = {"action": "ChangeMinIsr", "min_isr": 1}
    script = {"topic": "orders", "brokers": [1, 2], "steps": [step]}
    schedule = GuidedSchedule.model_validate(
        {"nodes": 3, "voters": [3], "properties": {"min.insync.replicas": "2"}, "script": script}
    )
    assert schedule.least_min_isr(schedule.topics[0]) == 1


@pytest.mark.parametrize(
    "stored",
    [
        {"nodes": 3, "script": {"voters": [1, 2, 3], "steps": [{"action": "Restart", "broker": 2}]}},
        {"nodes": 3, "score": {"voters": [1, 2, 3], "cues": [{"action": "Restart", "broker": 2}]}},
    ],
    ids=["today", "an earlier version"],
)
def test_a_stored_script_is_read(stored: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(stored))
    schedule = read_schedule(path)
    assert isinstance(schedule, GuidedSchedule) and isinstance(schedule.script, QuorumScript)
    assert schedule.script.steps[0].action == "Restart"


def test_a_stored_schedule_without_a_script_is_a_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps({"nodes": 3, "score": None}))
    assert type(read_schedule(path)) is Schedule
