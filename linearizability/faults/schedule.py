"""A schedule: the faults of a run, drawn by a seed, stored in a file, and injected again.

It is made of waves. A wave begins when the cluster is whole again (or will not be in time), injects one or two kinds of
faults, heals everything, and then injects nothing for a while. Times within a wave count from its beginning: a broker that
needs longer to recover gets fewer waves, never a fault while the cluster is still down.
"""

import math
import random
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from linearizability.faults.fault import FAULTS
from linearizability.faults.injection import Injection

QUIET_S = (1.0, 5.0)
WAVE_S = (4.0, 14.0)
INJECTION_S = (0.3, 8.0)
"""Drawn on a logarithmic scale: some bugs need a node that is back at once, some one that is long away."""
GAP_S = (0.1, 5.0)
GAP_OF_ONE_NODE_S = (3.0, 9.0)
"""A single node shows nothing while it is down: it gets time to serve between two faults."""
FAULTS_A_WAVE = 2


class ScheduleError(ValueError):
    """A file that is no schedule."""


class Wave(BaseModel):
    """Injections in the order of their beginnings, then a pause."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    injections: list[Injection]
    quiet_s: float = Field(ge=0)


class Schedule(BaseModel):
    """Waves; those that are not reached within `seconds` are left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    seconds: float
    waves: list[Wave]

    def save(self, path: Path) -> None:
        path.write_text(self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Schedule":
        """Errors: ScheduleError."""
        try:
            schedule = cls.model_validate_json(path.read_text())
        except (OSError, ValidationError) as error:
            raise ScheduleError(f"{path} is no schedule: {error}") from None
        unknown = {injection.fault for each in schedule.waves for injection in each.injections} - set(FAULTS)
        if unknown:
            raise ScheduleError(f"{path} names faults that there are not: {', '.join(sorted(unknown))}")
        return schedule


def draw(seed: int, seconds: float, faults: Sequence[str], nodes: int) -> Schedule:
    """As many waves as could fit. Equal arguments give equal schedules."""
    chance = random.Random(f"{seed}/schedule")
    waves: list[Wave] = []
    shortest = seconds
    while faults and shortest > 0:
        length = chance.uniform(*WAVE_S)
        kinds = chance.sample(list(faults), min(len(faults), chance.randint(1, FAULTS_A_WAVE)))
        injections = _injections(chance, length, kinds, GAP_S if nodes > 1 else GAP_OF_ONE_NODE_S)
        waves.append(Wave(injections=injections, quiet_s=round(chance.uniform(*QUIET_S), 3)))
        shortest -= length + waves[-1].quiet_s
    return Schedule(seed=seed, seconds=seconds, waves=waves)


def _injections(
    chance: random.Random, length: float, kinds: Sequence[str], gap_s: tuple[float, float]
) -> list[Injection]:
    """Injections that follow each other and may overlap; all are healed when the wave ends."""
    injections: list[Injection] = []
    now = 0.0
    while now < length - INJECTION_S[0]:
        fault = FAULTS[chance.choice(kinds)]
        injections.append(
            Injection(
                at_s=round(now, 3),
                fault=fault.name,
                who=chance.choice(fault.aims),
                pick=round(chance.random() * 0.999, 3),
                seconds=round(min(_logarithmic(chance, *INJECTION_S), length - now), 3),
            )
        )
        now += _logarithmic(chance, *gap_s)
    return injections


def _logarithmic(chance: random.Random, lowest: float, highest: float) -> float:
    return math.exp(chance.uniform(math.log(lowest), math.log(highest)))
