"""`tidegauge fuzz campaign`: one planned night, the following night, and an interrupted night that is resumed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tidegauge
from linearizability.campaign import night
from linearizability.campaign.night import Night, carry_out
from linearizability.campaign.nights import TABLE, BadTable, Row, add, next_seed, read_rows, runs_without_find
from linearizability.campaign.plan import BadPlan, read_plan
from linearizability.campaign.report import sums, write
from linearizability.simulation.fuzzing import fuzz
from linearizability.simulation.fuzzing_summary import Plan, Summary

PLAN = """
jobs = 1
[[series]]
workload = "groups"
minutes = 0.05
[[series]]
mutant = "high-watermark-back"
minutes = 1
finds = 2
"""
OURS, PLANTED = ("kraft", 1, "groups", ""), ("kraft", 1, "records", "high-watermark-back")


def row(night: str = "n1", **changed: object) -> Row:
    usual = Row(
        night=night,
        tidegauge="0.1",
        coordination="kraft",
        nodes=1,
        workload="groups",
        mutant="",
        first_seed=0,
        schedules=4,
        valid=4,
        invalid=0,
        unknown=0,
        excused=1,
        messages=400,
        acknowledged=40,
        cpu_seconds=2.0,
        seconds=3.0,
        to_first=None,
        pairs=("a-b",),
        violations=(),
    )
    return replace(usual, **changed)


def planned(tmp_path: Path, text: str = PLAN) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return path


def run(arguments: list[str], capsys) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        tidegauge.main(arguments)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_two_nights_share_no_seed_and_one_page(tmp_path: Path, capsys) -> None:
    store = tmp_path / "store"
    arguments = ["fuzz", "campaign", str(planned(tmp_path)), "--store", str(store), "--json", "--night"]
    for name in ("n1", "n2"):
        code, out, _ = run([*arguments, name], capsys)
        summary = json.loads(out.splitlines()[-1])
        assert (code, summary["verdict"], summary["night"]) == (0, "valid", name), summary
        ours, planted = summary["series"]
        assert ours["schedules"] and not ours["invalid"] and len(planted["found_after"]) == 2, summary
    rows = read_rows(store)
    for kind in (OURS, PLANTED):
        some = [each for each in rows if each.kind == kind]
        assert {each.night for each in some} == {"n1", "n2"}
        assert [each.first_seed for each in some] == [0, *(each.next_seed for each in some[:-1])]
    page = (store / "report.html").read_text()
    assert "n1" in page and "n2" in page and "<svg" in page and "high-watermark-back" in page
    assert run([*arguments, "n2"], capsys)[0] == 0
    assert read_rows(store) == rows  # that night is over


def test_an_interrupted_night_is_resumed(tmp_path: Path, monkeypatch) -> None:
    def interrupted(plan: Plan, progress) -> Summary:
        def one(summary: Summary) -> None:
            if summary.runs:
                raise KeyboardInterrupt

        summary = fuzz(plan, one)
        summary.seconds = 0.0  # however long a busy machine took: its time is not over
        return summary

    plan = read_plan(planned(tmp_path))
    monkeypatch.setattr(night, "fuzz", interrupted)
    first = carry_out(plan, "n1", tmp_path, lambda series, summary: None)
    assert first.interrupted and first.verdict == "unknown" and [each.kind for each in first.rows] == [OURS]
    monkeypatch.setattr(night, "fuzz", fuzz)
    second = carry_out(plan, "n1", tmp_path, lambda series, summary: None)
    assert second.verdict == "valid" and {each.kind for each in second.rows} == {OURS, PLANTED}
    assert second.rows[1].first_seed == first.rows[0].next_seed


@pytest.mark.parametrize(
    ("kinds", "rows", "verdict"),
    [
        ([OURS], [row()], "valid"),
        ([OURS], [row(valid=0, unknown=4)], "unknown"),
        ([OURS], [row(valid=3, unknown=1)], "valid"),
        ([OURS], [row(valid=3, unknown=1, undecided=(2,))], "unknown"),
        ([OURS], [row(valid=2, unknown=1, undecided=(2,), invalid=1)], "invalid"),
        ([OURS, ("kraft", 3, "groups", "")], [row()], "unknown"),
        ([OURS], [row(), row(invalid=1)], "invalid"),
        ([PLANTED], [row(workload="records", mutant="high-watermark-back")], "unknown"),
        ([OURS, PLANTED], [row(valid=0, unknown=4), row(workload="records", mutant="high-watermark-back")], "unknown"),
        ([OURS, PLANTED], [row(), row(workload="records", mutant="high-watermark-back", invalid=1)], "valid"),
    ],
)
def test_the_verdict_of_a_night_follows_from_those_of_its_series(kinds, rows, verdict: str) -> None:
    assert Night("n1", tuple(kinds), rows).verdict == verdict


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "series: Field required"),
        ("x = [", "is no TOML"),
        ("[[series]]\nminutes = 0", "series.0.minutes"),
        ("[[series]]\nminutes = 1\nmutant = 'none'", "mutant 'none' is none of"),
        ("[[series]]\nminutes = 1\nworkload = 'none'", "workload 'none' is none of"),
        ("[[series]]\nminutes = 1\ncoordination = 'zookeeper'", "zookeeper coordinates several nodes"),
        ("[[series]]\nminutes = 1\nseed = 3", "series.0.seed: Extra inputs"),
        ("[[series]]\nminutes = 1\n[[series]]\nnodes = 1\nminutes = 2", "is named twice"),
        ("master = 'local[2]'\n[[series]]\nminutes = 1", 'engine = "spark"'),
    ],
)
def test_an_invalid_plan_is_refused_with_its_place(tmp_path: Path, capsys, text: str, error: str) -> None:
    with pytest.raises(BadPlan, match=r"plan\.toml") as refused:
        read_plan(planned(tmp_path, text))
    assert error in str(refused.value)
    code, _, errors = run(["fuzz", "campaign", str(tmp_path / "plan.toml"), "--store", str(tmp_path / "s")], capsys)
    assert code == 64 and "plan.toml" in errors and not (tmp_path / "s").exists()


def test_a_damaged_table_is_refused_and_a_torn_last_line_dropped(tmp_path: Path, capsys) -> None:
    add(row(), tmp_path)
    whole = (tmp_path / TABLE).read_text()
    (tmp_path / TABLE).write_text(whole + '{"night": "n2"}\n')
    with pytest.raises(BadTable, match="line 2"):
        read_rows(tmp_path)
    code, _, errors = run(["fuzz", "campaign", str(planned(tmp_path)), "--store", str(tmp_path)], capsys)
    assert code == 3 and "line 2" in errors
    (tmp_path / TABLE).write_text(whole + whole[:20])  # the machine stopped while the second was written
    assert read_rows(tmp_path) == [row()]
    add(row("n2"), tmp_path)
    assert read_rows(tmp_path) == [row(), row("n2")]


def test_the_report_counts_runs_pairs_and_finds(tmp_path: Path) -> None:
    planted = {"workload": "records", "mutant": "high-watermark-back"}
    rows = [
        row(),
        row(pairs=("a-b", "b-c"), first_seed=4, cpu_seconds=6.0, excused=3),
        row("n2", pairs=("c-d",), first_seed=8, invalid=1, valid=3, violations=((9, "lost-write", "x"),)),
        row(first_seed=0, **planted),
        row("n2", first_seed=4, to_first=7, schedules=3, **planted),
    ]
    first, second, _, found = sums(rows)
    assert (first.schedules, first.pairs, first.new_pairs, first.excused_share) == (8, 2, 2, 0.5)
    assert (second.pairs, second.new_pairs, second.invalid) == (3, 1, 1)
    assert found.found_after == (7,)
    assert next_seed(OURS, rows) == 12 and next_seed(PLANTED, rows) == 7
    assert (runs_without_find(PLANTED, rows), runs_without_find(PLANTED, rows[:-1])) == (0, 4)
    write(rows, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "seed 9: lost-write" in page and "tidegauge replay x/schedule.json" in page and "not found" in page
    (cost,) = json.loads((tmp_path / "report.json").read_text())["costs"]
    assert cost == {"series": "1 node, groups", "cpu_seconds_a_run": 0.833, "runs": 1_000 * 8 * 3600 * 12 // 10}
