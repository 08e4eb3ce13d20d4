"""Whole runs: the effect of each fault, and the verdict of the contract."""

from pathlib import Path

import pytest

from linearizability.history.contract import Acks
from linearizability.pipeline.engine import check
from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import judge, run_schedule
from linearizability.simulation.run import execute
from linearizability.simulation.schedule import (
    ONE_NODE_FAULTS,
    Administrator,
    Consumer,
    Fault,
    Producer,
    Schedule,
    Topic,
)
from reference.protocol.primitives import NodeId
from reference.replication.leader import Leading

FLUSHED = {"flush.messages": "1"}


def schedule(*faults: Fault, configs: dict[str, str] | None = None, seed: int = 1, acks: Acks = "all") -> Schedule:
    return Schedule(
        seed=seed,
        duration_ms=600,
        topics=(Topic(name="orders", partitions=2, configs={"internal.segment.bytes": "2000", **(configs or {})}),),
        clients=(
            Producer(acks=acks, idempotent=acks == "all", batches=60, pause_ms=8),
            Consumer(sessions=True),
            Administrator(topics=2, pause_ms=50),
        ),
        faults=faults,
    )


def fault(kind: str) -> Fault:
    amount = {"disk-full": 100, "clock-jump": -60_000, "reset": 100, "flaky": 20, "slow": 50}.get(kind, 0)
    return Fault.model_validate({"at_ms": 150, "kind": kind, "for_ms": 100, "amount": amount})


def test_a_quiet_run_is_valid_and_loses_nothing():
    outcome, _ = run_schedule(schedule())
    assert outcome.verdict == "valid"
    assert outcome.acknowledged > 50
    assert outcome.consumed >= 2 * outcome.acknowledged, "the consumer and the last reader saw every record"
    assert outcome.judgement is not None and not outcome.judgement.permitted


@pytest.mark.parametrize("kind", ONE_NODE_FAULTS)
def test_no_fault_breaks_a_promise(kind: str):
    outcome, trace = run_schedule(schedule(fault(kind)), keep_trace=True)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.counts[f"fault {kind}"] == 1
    if kind in ("crash", "power-loss", "stop"):
        assert any("incarnation 2" in line for line in trace.lines)


@pytest.mark.parametrize("seed", range(4))
def test_power_loss_takes_nothing_that_was_flushed(seed: int):
    outcome, _ = run_schedule(schedule(fault("power-loss"), configs=FLUSHED, seed=seed))
    assert outcome.verdict == "valid"
    assert not outcome.counts["records lost in power failures"]


def test_power_loss_may_take_what_was_not_flushed_and_the_contract_permits_it():
    outcomes = [run_schedule(schedule(fault("power-loss"), seed=seed))[0] for seed in range(4)]
    assert {outcome.verdict for outcome in outcomes} == {"valid"}
    assert any(outcome.counts["records lost in power failures"] for outcome in outcomes)
    permitted = [outcome.judgement.permitted for outcome in outcomes if outcome.judgement is not None]
    assert any("lost-write" in each for each in permitted), permitted


def test_a_killed_process_loses_nothing_even_with_acks_1():
    outcome, _ = run_schedule(schedule(fault("crash"), acks="1"))
    assert outcome.verdict == "valid"
    assert outcome.judgement is not None and "lost-write" not in outcome.judgement.anomalies


def test_what_is_written_is_judged_as_what_was_recorded(tmp_path: Path):
    outcome, _ = run_schedule(schedule(fault("power-loss"), seed=2), history_folder=tmp_path)
    (judgement,) = check([tmp_path])
    assert outcome.judgement is not None
    assert (judgement.verdict, judgement.anomalies, judgement.facts) == (
        outcome.judgement.verdict,
        outcome.judgement.anomalies,
        outcome.judgement.facts,
    )


def test_a_loss_that_coincides_with_an_excuse_of_another_partition_is_found():
    """The same histories are invalid if the power loss excuses another topic, or was over before the run began."""
    finished, _ = execute(schedule(Fault(at_ms=300, kind="power-loss", for_ms=100), seed=4))
    excused = judge(finished)
    assert (excused.verdict, excused.rule) == ("valid", "") and excused.judgement is not None
    assert any("lost-write" in rules for rules in excused.judgement.excused.values()), excused.to_json()
    marks = [
        event
        for history in finished.histories
        for event in history.events
        if event.get("f") in ("excuse", "excuse-over")
    ]
    assert [mark["f"] for mark in marks] == ["excuse", "excuse-over"] and "orders" in marks[0]["keys"]
    kept = dict(marks[0])
    for change in ({"keys": ["another-0"]}, {"time": 0}):
        marks[0].update(change)
        marks[1]["time"] = 1 if "time" in change else marks[1]["time"]
        found = judge(finished)
        assert (found.verdict, "lost-write" in found.rule) == ("invalid", True), (change, found.to_json())
        marks[0].update(kept)


def test_a_proposal_that_changes_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def propose_again(leading: Leading, follower: NodeId) -> bool:
        if leading.pending is not None or follower not in leading.replica.state.isr:
            return False
        leading._propose(leading.replica.state.isr)
        leading.replica.trace_step("ExpandIsr", leader=leading.replica.node, follower=follower)
        return True

    monkeypatch.setattr(Leading, "expand_isr", propose_again)
    outcome, _ = run_schedule(draw(0, None, 3))
    assert outcome.rule == "proposal-of-no-change"
