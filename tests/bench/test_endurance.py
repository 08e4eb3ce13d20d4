"""bench endurance: a leg's schedule, what counts as growth or as lost, and one short leg on real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.bench.commands import app
from linearizability.bench.endurance import QUANTITIES, grown, growth, read_store, schedule_of
from linearizability.bench.side_topics import Written


def test_a_leg_of_two_hours_has_an_hour_with_a_dead_follower_and_a_rolling_restart_every_ten_minutes() -> None:
    schedule = schedule_of(7200, nodes=3, seed=1)
    kinds = [[each.fault for each in wave.injections] for wave in schedule.waves]
    assert kinds == [["stop"] * 3] * 3 + [["kill"]] + [["stop"] * 3] * 3
    dead = schedule.waves[3].injections[0]
    assert (dead.who, dead.seconds) == ("follower", 3600)
    restart = schedule.waves[0]
    assert [int(each.pick * 3) for each in restart.injections] == [0, 1, 2], "each node once"
    assert all(a.ends_s < b.at_s for a, b in zip(restart.injections, restart.injections[1:], strict=False))
    assert restart.quiet_s + restart.injections[-1].at_s == pytest.approx(600, abs=30)


def test_a_single_node_is_restarted_and_never_dead_for_long() -> None:
    waves = schedule_of(60, nodes=1, seed=1).waves
    assert {each.fault for wave in waves for each in wave.injections} == {"stop"}


def samples(*values: float, nodes: int = 3, starts: int = 3) -> list[dict[str, float]]:
    return [{"nodes": nodes, "starts": starts, "memory_mb": value} for value in values]


@pytest.mark.parametrize(("last", "grew"), [(100, []), (119, []), (121, ["memory_mb"])])
def test_growth_is_what_exceeds_its_tolerance(last: float, grew: list[str]) -> None:
    assert (QUANTITIES["memory_mb"].share, QUANTITIES["memory_mb"].least) == (0.15, 20)
    found = growth(samples(*[100.0] * 5, *[110.0] * 15, *[last] * 5))
    assert found == {"memory_mb": {"first": 100, "last": last}}
    assert grown(found) == grew


def test_only_the_longest_stretch_without_a_start_or_an_end_is_compared() -> None:
    filling, down, again = samples(10, 20, 60), samples(*[100] * 5, *[101] * 5, nodes=2), samples(*[900] * 9, starts=4)
    assert growth([*filling, *down, *again])["memory_mb"] == {"first": 100, "last": 101}
    restarted_unseen = [*samples(*[100] * 5), *samples(*[300] * 4, starts=4)]
    assert growth(restarted_unseen)["memory_mb"] == {"first": 100, "last": 100}, "a node came back between two looks"
    assert growth(samples(1, 2, 3)) == {}, "too few to say"


def test_a_key_whose_last_acknowledged_value_is_gone_is_lost() -> None:
    written = Written(attempted={1: 9, 2: 9, 3: 9, 4: 9}, acknowledged={1: 5, 2: 5, 3: 5})
    assert written.lost({1: 5, 2: 9, 3: 7}) == [], "a later one may be there: its outcome was not known"
    assert written.lost({1: 3, 2: 5, 3: 5}) == ["key 1: 5 was acknowledged, the last one stored is 3"]
    assert written.lost({2: 5, 3: 5}) == ["key 1: 5 was acknowledged, the last one stored is None"]
    assert written.lost({1: 10, 2: 5, 3: 5}) == ["key 1: 5 was acknowledged, the last one stored is 10"]


@pytest.mark.slow
def test_a_short_leg_is_judged_stored_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "endurance.json"
    asked = ["endurance", "--hours", "0.0084", "--leg-minutes", "0.5", "--store", str(store), "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.splitlines()[-1])
    (leg,) = summary["legs"]
    assert leg["verdict"] == "valid" and leg["lost"] == []
    assert leg["faults"].get("stop", 0) >= 3
    assert leg["grew"] is None, "half a minute is too short to say"
    assert leg["beside"]["sent"] > 0 and leg["acknowledged"] > 0
    (stored,) = read_store(store)
    assert all(sample["memory_mb"] > 0 for sample in stored["samples"] if sample["nodes"] == 3)
    assert "<svg" in store.with_suffix(".svg").read_text()
    again = CliRunner().invoke(app, [*asked, "--resume"])
    assert again.exit_code == 0 and read_store(store) == [stored], "the hours are full"
