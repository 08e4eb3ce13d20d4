"""Schedules are values: equal seeds draw equal ones, files restore them, and all keep their bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linearizability.faults import all_faults
from linearizability.faults.schedule import INJECTION_S, WAVE_S, Schedule, ScheduleError, draw

NAMES = sorted(all_faults())
seeds = st.integers(0, 2**48)
kinds = st.lists(st.sampled_from(NAMES), unique=True, min_size=1)


@given(seed=seeds, seconds=st.floats(1, 600), names=kinds, nodes=st.integers(1, 5))
def test_drawn_schedules_keep_their_bounds(seed, seconds, names, nodes):
    schedule = draw(seed, seconds, names, nodes)
    assert schedule == draw(seed, seconds, names, nodes)
    assert sum(WAVE_S[1] + wave.quiet_s for wave in schedule.waves) >= seconds
    for wave in schedule.waves:
        assert wave.injections
        assert wave.injections == sorted(wave.injections, key=lambda injection: injection.at_s)
        assert max(injection.ends_s for injection in wave.injections) <= WAVE_S[1] + 0.01
        assert {injection.fault for injection in wave.injections} <= set(names)
        assert all(injection.who in all_faults()[injection.fault].aims for injection in wave.injections)
        assert all(0 <= injection.seconds <= INJECTION_S[1] for injection in wave.injections)


@given(seed=seeds)
def test_other_seeds_give_other_schedules(seed):
    assert draw(seed, 120, NAMES, 3).waves != draw(seed + 1, 120, NAMES, 3).waves


def test_every_fault_is_drawn_in_the_long_run():
    drawn = {s.fault for seed in range(30) for wave in draw(seed, 300, NAMES, 3).waves for s in wave.injections}
    assert drawn == set(NAMES)


def test_no_fault_is_a_schedule_too():
    assert draw(1, 60, [], 3).waves == []


def test_a_file_gives_it_back(tmp_path):
    schedule = draw(7, 90, NAMES, 3)
    schedule.save(tmp_path / "schedule.json")
    assert Schedule.load(tmp_path / "schedule.json") == schedule


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no schedule"),
        ("{}", "is no schedule"),
        ('{"seed": 1, "seconds": 1, "waves": [{"injections": [], "quiet_s": -1}]}', "quiet_s"),
        (
            '{"seed": 1, "seconds": 1, "waves": [{"injections": [{"at_s": 0, "fault": "meteor"}], "quiet_s": 1}]}',
            "names faults that there are not: meteor",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, text, reason):
    (tmp_path / "schedule.json").write_text(text)
    with pytest.raises(ScheduleError, match=reason):
        Schedule.load(tmp_path / "schedule.json")
