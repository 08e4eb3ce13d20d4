"""A reduction keeps only what was seen to fail."""

from hypothesis import assume, given
from hypothesis import strategies as st

from linearizability.faults import all_faults
from linearizability.faults.reduction import reduce
from linearizability.faults.schedule import Schedule, draw

NAMES = sorted(all_faults())


def injections(schedule: Schedule) -> list[str]:
    return [f"{injection.fault} {injection.at_s}" for wave in schedule.waves for injection in wave.injections]


@given(seed=st.integers(0, 10_000), data=st.data())
def test_only_the_needed_injections_of_one_wave_are_left(seed, data):
    schedule = draw(seed, 60, NAMES, 3)
    wave = data.draw(st.sampled_from(schedule.waves))
    needed = data.draw(st.lists(st.sampled_from(wave.injections), min_size=1, max_size=3, unique=True))
    tried: list[Schedule] = []

    def fails(candidate: Schedule) -> bool:
        tried.append(candidate)
        return all(any(injection in each.injections for each in candidate.waves) for injection in needed)

    small = reduce(schedule, fails, lambda: False)
    assert small in tried and fails(small)
    assert {injection for each in small.waves for injection in each.injections} == set(needed)


@given(seed=st.integers(0, 10_000))
def test_what_needs_two_waves_keeps_two(seed):
    schedule = draw(seed, 120, NAMES, 3)
    assume(len(schedule.waves) > 1)
    first, last = schedule.waves[0], schedule.waves[-1]

    def fails(candidate: Schedule) -> bool:
        present = [injection for wave in candidate.waves for injection in wave.injections]
        return first.injections[0] in present and last.injections[-1] in present

    small = reduce(schedule, fails, lambda: False)
    assert sorted(injections(small)) == sorted(
        f"{injection.fault} {injection.at_s}" for injection in (first.injections[0], last.injections[-1])
    )


def test_without_another_failure_it_stays_what_it_was():
    schedule = draw(1, 60, NAMES, 3)
    assert reduce(schedule, lambda candidate: False, lambda: False) == schedule


def test_out_of_time_it_stops():
    schedule = draw(1, 60, NAMES, 3)
    calls: list[Schedule] = []
    reduce(schedule, lambda candidate: bool(calls.append(candidate)), lambda: len(calls) >= 2)
    assert len(calls) == 2
