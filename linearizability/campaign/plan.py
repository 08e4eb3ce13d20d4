"""The plan of a night, from a TOML file.

jobs = 2                      # processes; 0: one a core. Or engine = "spark" and master = "spark://HOST:7077"

[[series]]                    # the current code: every violation is a defect
nodes = 3
workload = "transactions"
minutes = 60

[[series]]                    # a planted bug: measures the runs until it is found
mutant = "kip-497"
minutes = 10
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class BadPlan(Exception):
    """The file is no plan; the text names the wrong field."""


class Series(BaseModel):
    """Runs of one kind: their seeds follow each other from night to night."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    minutes: float = Field(gt=0)
    nodes: int = Field(default=0, ge=0, le=9)
    """0: as many as the mutant needs, else 1."""
    workload: str = ""
    """Empty: the mutant's, else records."""
    coordination: Literal["", "kraft", "zookeeper", "changing-voters"] = ""
    """Empty: the mutant's, else kraft."""
    mutant: str = ""
    finds: int = Field(default=10, gt=0)
    """The number of finds of a planted bug after which the series ends."""

    @model_validator(mode="after")
    def _is_known(self) -> Series:
        from linearizability.mutants.registry import MUTANTS
        from linearizability.simulation.workloads import WORKLOADS

        if self.mutant and self.mutant not in MUTANTS:
            raise ValueError(f"mutant {self.mutant!r} is none of {', '.join(MUTANTS)}")
        if self.workload and self.workload not in WORKLOADS:
            raise ValueError(f"workload {self.workload!r} is none of {', '.join(WORKLOADS)}")
        if self.kind[0] != "kraft" and self.kind[1] == 1:
            raise ValueError(f"{self.kind[0]} coordinates several nodes: nodes = 3")
        return self

    @property
    def kind(self) -> tuple[str, int, str, str]:
        """Coordination, nodes, workload and mutant: seeds are counted in each."""
        from linearizability.mutants.registry import MUTANTS

        mutant = MUTANTS[self.mutant] if self.mutant else None
        return (
            self.coordination or (mutant.coordination if mutant else "kraft"),
            self.nodes or (mutant.nodes if mutant else 1),
            self.workload or (mutant.workload if mutant and mutant.workload else "records"),
            self.mutant,
        )


class NightPlan(BaseModel):
    """The content of a plan file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    series: tuple[Series, ...] = Field(min_length=1)
    jobs: int = Field(default=0, ge=0, le=256)
    engine: Literal["processes", "spark"] = "processes"
    master: str = ""
    spark: dict[str, str] = {}
    """Spark's settings."""

    @model_validator(mode="after")
    def _is_consistent(self) -> NightPlan:
        kinds = [each.kind for each in self.series]
        if twice := next((kind for kind in kinds if kinds.count(kind) > 1), None):
            raise ValueError(f"the series {' '.join(map(str, twice)).strip()} is named twice")
        if self.engine == "processes" and (self.master or self.spark):
            raise ValueError('master and spark are for engine = "spark"')
        return self


def read_plan(path: Path) -> NightPlan:
    """Read a plan. Errors: BadPlan."""
    try:
        return NightPlan.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise BadPlan(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPlan(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        places = (".".join(map(str, each["loc"])) or "the plan" for each in error.errors())
        said = "; ".join(f"{place}: {each['msg']}" for place, each in zip(places, error.errors(), strict=True))
        raise BadPlan(f"{path}: {said}") from None
