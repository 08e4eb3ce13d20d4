"""The plans that the commands `hunt` and `replay` make of their options, and the summary that they print."""

import sys
from pathlib import Path

import pytest
import typer

from linearizability import commands
from linearizability.faults.plan import Plan
from linearizability.faults.round import RoundResult
from linearizability.faults.schedule import Schedule
from linearizability.faults.summary import sum_up
from linearizability.targets import java
from linearizability.targets.cluster import ClusterTarget


@pytest.mark.parametrize(
    ("target", "nodes"), [("kafka:4.3.1", 3), ("kafka:0.10.2.2", 3), ("reference", 3), ("reference:1", 1)]
)
def test_a_hunt_without_a_number_of_nodes_is_for_three(target, nodes, monkeypatch, tmp_path):
    from linearizability.faults.backend import planned_target

    carried_out = []
    monkeypatch.setattr(commands, "_carry_out", lambda plan, *rest: carried_out.append(plan))
    commands.hunt(target=target, results=tmp_path, backend=commands.Backend.PLAIN)
    planned = planned_target(carried_out[0], tmp_path)
    assert isinstance(planned, ClusterTarget) and planned.size == nodes


@pytest.mark.parametrize(
    ("asked", "minutes", "rounds", "reduce_minutes"),
    [
        ({}, 1, 1, 0),
        ({"until_found": True}, 60, 60, 10),
        ({"until_found": True, "minutes": 2.0, "reduce_minutes": 0.0}, 2, 2, 0),
        ({"reduce_minutes": 3.0}, 1, 1, 3),
    ],
)
def test_a_hunt_that_is_to_find_something_goes_on_for_an_hour(
    asked, minutes, rounds, reduce_minutes, monkeypatch, tmp_path
):
    carried_out = []
    monkeypatch.setattr(commands, "_carry_out", lambda plan, *rest: carried_out.append(plan))
    commands.hunt(target="reference:1", results=tmp_path, backend=commands.Backend.PLAIN, **asked)
    plan = carried_out[0]
    assert (plan.minutes, plan.rounds, plan.reduce_minutes) == (minutes, rounds, reduce_minutes)


def test_a_replay_makes_no_schedule_smaller(monkeypatch, tmp_path):
    plan = Plan(target="reference:1", minutes=60, seed=1, until_found=True, reduce_minutes=10)
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    Schedule(seed=1, seconds=1, waves=[]).save(tmp_path / "schedule.json")
    carried_out = []
    monkeypatch.setattr(commands, "_carry_out", lambda plan, *rest: carried_out.append(plan))
    commands.replay(tmp_path, results=tmp_path)
    assert carried_out[0].reduce_minutes == 0


@pytest.mark.parametrize("lacking", ["pyspark", "java"])
def test_where_spark_cannot_run_the_local_engine_judges_alone(lacking, monkeypatch, tmp_path):
    def no_java():
        raise java.JavaMissing("Java 17 or newer is needed")

    if lacking == "java":
        monkeypatch.setattr(java, "java", no_java)
    else:
        monkeypatch.setitem(sys.modules, "pyspark", None)
    carried_out = []
    monkeypatch.setattr(commands, "_carry_out", lambda plan, *rest: carried_out.append(plan))
    commands.hunt(target="reference:1", results=tmp_path, backend=commands.Backend.PLAIN)
    assert carried_out[0].engine == "local"
    for wanted in (commands.Engine.BOTH, commands.Engine.SPARK):
        with pytest.raises((ModuleNotFoundError, typer.BadParameter), match=r"pyspark|Java 17"):
            commands.hunt(target="reference:1", results=tmp_path, backend=commands.Backend.PLAIN, engine=wanted)
    assert len(carried_out) == 1, "it is refused before a broker is started"


def test_the_help_names_every_fault():
    from linearizability.faults import all_faults

    assert sorted(commands.FAULT_NAMES.split(", ")) == sorted(all_faults())


def test_what_is_permitted_says_why(capsys):
    def result(count: int) -> RoundResult:
        found = {
            "anomalies": {"lost-write": count + 1},
            "permitted": {"lost-write": {"acks=1 promises no more": count}},
        }
        return RoundResult.model_construct(verdict="valid", folder="f", **found)

    summary = sum_up(Plan(target="reference:1", minutes=1, seed=1), [result(560), result(1)], {}, 1.0, Path("f"), False)
    commands._print_summary(summary)
    assert summary["permitted"] == {"lost-write": 561}
    assert "lost-write × 563; 561 permitted: acks=1 promises no more\n" in capsys.readouterr().out
