"""Making a found schedule small: what is left is what the bug needs.

Real processes are no simulation: the same blows miss more often than they hit. So a candidate counts as failing when one
of a few attempts fails, waves are repeated within an attempt, and the whole is bounded by a time. A candidate that did not
fail proves nothing; the reduction only ever keeps what has been seen to fail.
"""

from collections.abc import Callable

from linearizability.faults.schedule import Schedule, Wave

REPETITIONS = 3
"""How often a single wave is carried out in one attempt."""

Fails = Callable[[Schedule], bool]


def reduce(schedule: Schedule, fails: Fails, out_of_time: Callable[[], bool]) -> Schedule:
    """A smaller schedule that was seen to fail; the given one where none was."""
    best = _one_wave(schedule, fails, out_of_time) or _fewer_waves(schedule, fails, out_of_time)
    return _fewer_strikes(best, fails, out_of_time)


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


def _fewer_strikes(schedule: Schedule, fails: Fails, out_of_time: Callable[[], bool]) -> Schedule:
    """Each strike is left out once, the last first; equal strikes of repeated waves go together."""
    best = schedule
    strikes = list(dict.fromkeys(strike for wave in schedule.waves for strike in wave.strikes))
    for strike in reversed(strikes):
        if out_of_time():
            break
        waves = [
            Wave(strikes=[other for other in wave.strikes if other != strike], quiet_s=wave.quiet_s)
            for wave in best.waves
        ]
        candidate = best.model_copy(update={"waves": [wave for wave in waves if wave.strikes]})
        if candidate.waves and fails(candidate):
            best = candidate
    return best
