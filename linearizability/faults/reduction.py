"""Making a found schedule small: what is left is what the bug needs.

Real processes are not deterministic: most repetitions of the same injections do not show the bug. So a candidate counts as
failing when one of a few attempts fails, waves are repeated within an attempt, and a time bounds the whole. A candidate that
did not fail proves nothing; the reduction keeps only schedules that were seen to fail.
"""

from collections.abc import Callable

from linearizability.faults.schedule import Schedule, Wave

REPETITIONS = 3
"""How often a single wave is carried out in one attempt."""

Fails = Callable[[Schedule], bool]


def reduce(schedule: Schedule, fails: Fails, out_of_time: Callable[[], bool]) -> Schedule:
    """A smaller schedule that was seen to fail; the given one where none was."""
    best = _one_wave(schedule, fails, out_of_time) or _fewer_waves(schedule, fails, out_of_time)
    return _fewer_injections(best, fails, out_of_time)


def _one_wave(schedule: Schedule, fails: Fails, out_of_time: Callable[[], bool]) -> Schedule | None:
    """One wave alone, the later ones first: the run ended soon after the bug had shown."""
    for wave in reversed(schedule.waves):
        if out_of_time():
            return None
        candidate = schedule.model_copy(update={"waves": [wave] * REPETITIONS})
        if fails(candidate):
            return candidate
    return None


def _fewer_waves(schedule: Schedule, fails: Fails, out_of_time: Callable[[], bool]) -> Schedule:
    best = schedule
    for wave in schedule.waves:
        if out_of_time() or len(best.waves) <= 1:
            break
        candidate = best.model_copy(update={"waves": [other for other in best.waves if other != wave]})
        if fails(candidate):
            best = candidate
    return best


def _fewer_injections(schedule: Schedule, fails: Fails, out_of_time: Callable[[], bool]) -> Schedule:
    """Each injection is left out once, the last first; equal injections of repeated waves go together."""
    best = schedule
    injections = list(dict.fromkeys(injection for wave in schedule.waves for injection in wave.injections))
    for injection in reversed(injections):
        if out_of_time():
            break
        waves = [
            Wave(injections=[other for other in wave.injections if other != injection], quiet_s=wave.quiet_s)
            for wave in best.waves
        ]
        candidate = best.model_copy(update={"waves": [wave for wave in waves if wave.injections]})
        if candidate.waves and fails(candidate):
            best = candidate
    return best
