"""The specification's behaviours are driven through simulated clusters: allowed behaviours hold, and the counterexample of a
switch fails with the mutant of the same bug.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.guided.schedule import read_schedule
from linearizability.mutants.registry import MUTANTS, planted
from linearizability.simulation.judging import run_schedule
from spec import replication_trace
from spec.catalogue import MODELS
from spec.checker import Verdict
from spec.cluster_trace import partition_traces
from spec.commands import app
from spec.fault_schedules import MUTANT_OF
from spec.replication_trace import Trace
from spec.trace import check_traces, read_trace
from tests.spec.clusters import Row, as_read
from tests.spec.counterexamples import counterexample
from tests.spec.driven import driven, share_taken

pytestmark = pytest.mark.java


TOGETHER_WITH = {"TruncateWithoutFencing": "newer-epochs-appended"}
"""Switches whose counterexamples need another bug of that time: since KAFKA-18723 a follower leaves the batches that the unfenced
fetch would bring it."""


@contextmanager
def planted_for(switch: str) -> Generator[None]:
    """Plant the switch's mutant, and the further bug that its counterexample needs."""
    also = TOGETHER_WITH.get(switch)
    with planted(MUTANT_OF[switch]), planted(also) if also else nullcontext():
        yield


def test_every_switch_of_replication_has_a_mutant() -> None:
    atomic = [model for model in MODELS if model.module == "MCReplication"]
    switches = {switch.name for model in atomic for switch in model.switches if not switch.edit}
    assert switches == {*MUTANT_OF}
    assert {*MUTANT_OF.values()} <= {*MUTANTS}


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize("switch", MUTANT_OF)
def test_a_counterexample_holds_with_the_reference_and_fails_with_the_mutant(switch: str) -> None:
    plan = driven(counterexample(switch))
    sound, _ = run_schedule(plan)
    assert (sound.verdict, sound.rule) == ("valid", ""), sound.text
    with planted_for(switch):
        broken, _ = run_schedule(plan)
    assert broken.verdict == "invalid"


def trace_of_driven(switch: str, mutant: str) -> Trace:
    """The trace of the only partition."""
    rows: list[Row] = []
    with planted_for(switch) if mutant else nullcontext():
        run_schedule(driven(counterexample(switch)), by_history=True, rows=rows)
    (events,) = partition_traces(as_read(rows)).values()
    return replication_trace.trace_of(events, f"{switch} {mutant or 'sound'}")


REPORT_NOTHING_FALSE = {
    "AcknowledgeBeforeHighWatermark": "it reports a produce with acks=1, and what the client asked for is not in its trace",
    "ElectOutsideIsr": "an administrator may ask for an unclean election, too",
    "ForgetSequences": "a trace reports records by offsets, not by what is in them",
}
"""Switches whose mutants' steps are all steps of the specification, and why."""


@pytest.mark.sampled(days=5)
def test_traces_of_mutants_are_rejected_and_those_of_the_reference_are_not() -> None:
    traces = [trace_of_driven(switch, bug) for switch, mutant in MUTANT_OF.items() for bug in ("", mutant)]
    done = check_traces(traces, look_ups=0)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    leaving = {switch: mutant for switch, mutant in MUTANT_OF.items() if switch not in REPORT_NOTHING_FALSE}
    assert {verdict.name for verdict in done.rejected} == {f"{switch} {mutant}" for switch, mutant in leaving.items()}


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize("model", ["MCFailover", "MCRecovery", "MCReassignment", "MCReconfiguration"])
def test_random_behaviours_hold_with_the_reference(model: str) -> None:
    """The script ends where a cluster must act differently (it may not wait, or forget)."""
    assert share_taken(model, 4, 60) > 1 / 4


@pytest.mark.sampled(days=6)
def test_the_command_writes_schedules_that_can_be_replayed(tmp_path: Path) -> None:
    """Paths that cover every edge of the smallest model: their coverage, the edges that a cluster walks, and their traces."""
    folder, out = tmp_path / "schedules", tmp_path / "steps.jsonl"
    arguments = ["spec", "behaviours", "MCFailover", "--cover", "--walk", "8", "--faults", str(folder), "--json"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.splitlines()[-1])
    files = sorted(folder.glob("*.json"))
    assert summary["edges"] == summary["edges covered"] > 5_000
    assert summary["paths walked whole"] == summary["paths driven"] == 8
    assert 80 < summary["edges walked"] < summary["edges"]
    assert summary["broken"] == []
    assert len(files) == summary["behaviours"]
    for file in files[:: len(files) // 4]:
        outcome, _ = run_schedule(read_schedule(file))
        assert (outcome.verdict, outcome.rule) == ("valid", ""), outcome.text
    lines = out.read_text().splitlines()
    sample = [json.loads(line) for line in lines[:: len(lines) // 60]]
    traces = [read_trace([json.dumps(event) for event in row["events"]], str(n)) for n, row in enumerate(sample)]
    found = check_traces(traces)
    assert (found.outcome.verdict, found.rejected) == (Verdict.HOLDS, ())
