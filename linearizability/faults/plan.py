"""The plan of a hunt."""

import math
import random
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from linearizability.history.contract import Acks

SHORT_ROUND_S = 60.0
LONG_ROUND_S = 600.0
"""A round's history is judged in memory; ten minutes are some hundred thousand operations."""

FAST_FAILOVER: dict[str, str] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "replica.lag.time.max.ms": "3000",
}
"""Elections in three seconds instead of ten: three times as many in a hunt. Promises do not depend on them."""


class Plan(BaseModel):
    """The parameters of a hunt; with its seed, enough to repeat it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    minutes: float = Field(gt=0)
    seed: int
    faults: list[str] = Field(default=[], description="by name; none means all that the target and the backend offer")
    until_found: bool = False
    nodes: int | None = Field(default=None, description="where the target's text does not say it")
    rate_per_s: float = Field(default=400, gt=0, description="sends of all producers together")
    acks: Acks = "all"
    transactions: bool = Field(default=False, description="a fourth producer commits and aborts transactions")
    unclean_election: bool = False
    group_protocol: Literal["classic", "consumer"] = "classic"
    config: dict[str, str] = Field(default={}, description="broker properties beside FAST_FAILOVER")
    mapped: list[str] = Field(default=[], description="ADVERTISED=REACHABLE, as `--map` takes it")
    client_config: str = Field(
        default="", description="the client.properties of a secured target: its path, never its content"
    )
    reduce_minutes: float = Field(default=0, ge=0, description="how long a found schedule may be made smaller; 0: not")
    engine: str = Field(default="both", pattern="^(both|local|spark)$")
    backend: Literal["plain", "netns", "docker"] = Field(
        default="plain",
        description="processes side by side, each in a network namespace inside a sandbox, or in a container",
    )
    image: str = Field(default="", description="what containers are made of; empty: of this machine's own programs")

    @property
    def round_s(self) -> float:
        total = self.minutes * 60
        return min(total, SHORT_ROUND_S if self.until_found else LONG_ROUND_S)

    @property
    def rounds(self) -> int:
        """How many rounds fit; with `until_found` the most that are tried."""
        return max(1, math.floor(self.minutes * 60 / self.round_s))

    def round_seed(self, number: int) -> int:
        return random.Random(f"{self.seed}/{number}").getrandbits(48)

    @property
    def risks(self) -> list[str]:
        """What could run code, use files or reach other machines if another wrote this plan."""
        remote = [self.target] if self.target.startswith(("exec:", "addr:")) else []
        properties = [f"{name}={value}" for name, value in self.config.items()]
        return [each for each in (*remote, self.image, self.client_config, *properties) if each]
