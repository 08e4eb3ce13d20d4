"""Behaviours of transactions and groups are driven through simulated coordinators and their clients: allowed behaviours
hold, and the counterexample of a switch fails with the mutant of the same bug.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linearizability.guided.schedule import GuidedSchedule, read_schedule
from linearizability.guided.scripts import GroupScript
from linearizability.mutants.registry import MUTANTS, planted
from linearizability.simulation.judging import Outcome, run_schedule
from spec.behaviours import CHAPTERS
from spec.catalogue import MODELS
from spec.checker import Verdict
from spec.commands import app
from spec.coordinator_schedules import MUTANT_OF
from spec.shard_trace import group_traces, transaction_traces
from spec.trace import AnyTrace, check_traces, trace_of
from tests.spec.counterexamples import counterexample
from tests.spec.driven import driven

pytestmark = pytest.mark.java


@cache
def plan_of(switch: str) -> GuidedSchedule:
    return driven(counterexample(switch))


def is_whole(outcome: Outcome) -> bool:
    """Whether the cluster took every step."""
    assert isinstance(outcome.schedule, GuidedSchedule)
    return outcome.counts["script_steps"] == len(outcome.schedule.script.steps)


def test_every_switch_of_coordinators_has_a_mutant() -> None:
    switches = {
        switch.name for model in MODELS if model.folder in CHAPTERS for switch in model.switches if not switch.edit
    }
    assert switches == {*MUTANT_OF}
    assert {*MUTANT_OF.values()} <= {*MUTANTS}


BROKEN_BY = {
    "AssignBeforeRevocation": "commit-of-former-generation",
    "BeforeKip890": "hanging-transaction",
    "KeepEpochOnNewSession": "G1a",
    "MarkerBeforeDecision": "G1a",
}
"""Switch -> the promise that its mutant breaks."""


@pytest.mark.parametrize("switch", MUTANT_OF)
def test_a_counterexample_is_left_by_the_reference_and_followed_to_its_end_by_the_mutant(switch: str) -> None:
    plan = plan_of(switch)
    sound, _ = run_schedule(plan)
    assert (sound.verdict, sound.rule) == ("valid", ""), sound.text
    assert not is_whole(sound)
    with planted(MUTANT_OF[switch]):
        broken, _ = run_schedule(plan)
    assert (broken.verdict, broken.rule) == ("invalid", BROKEN_BY[switch]), broken.text
    assert is_whole(broken)


def trace_of_driven(switch: str, mutant: str) -> AnyTrace:
    """The trace of the only group or transactional id by the coordinator and the leaders of partitions."""
    rows: list[dict[str, Any]] = []
    with planted(mutant) if mutant else nullcontext():
        run_schedule(plan_of(switch), by_history=True, rows=rows)
    stored = [json.loads(json.dumps(row)) for row in rows]
    traces_of = group_traces if isinstance(plan_of(switch).script, GroupScript) else transaction_traces
    found = traces_of(stored)
    (events,) = found.values()
    return trace_of(events, f"{switch} {mutant or 'sound'}")


@pytest.mark.sampled(days=5)
def test_traces_of_mutants_are_rejected_and_those_of_the_reference_are_not() -> None:
    traces = [trace_of_driven(switch, bug) for switch, mutant in MUTANT_OF.items() for bug in ("", mutant)]
    done = check_traces(traces, look_ups=0)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert {verdict.name for verdict in done.rejected} == {f"{switch} {bug}" for switch, bug in MUTANT_OF.items()}


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize(("model", "least_percent"), [("MCTransactions", 90), ("MCGroups", 60)])
def test_random_behaviours_hold_with_the_reference(model: str, least_percent: int) -> None:
    """Most of their steps are taken; steps that the reference makes at once cannot always be separated."""
    done = CliRunner().invoke(app, ["spec", "behaviours", model, "--count", "6", "--walk", "6", "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["broken"] == [] and summary["behaviours driven"] == 6
    assert summary["steps walked"] * 100 > summary["steps driven"] * least_percent


def test_the_command_writes_schedules_that_can_be_replayed(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["spec", "behaviours", "AssignBeforeRevocation", "--faults", str(tmp_path)])
    assert done.exit_code == 0, done.output
    (file,) = tmp_path.glob("*.json")
    stored = read_schedule(file)
    assert isinstance(stored, GuidedSchedule) and stored.script == plan_of("AssignBeforeRevocation").script
