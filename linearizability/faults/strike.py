"""One blow, as a value."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Who = Literal["any", "leader", "follower", "controller", "coordinator"]
"""Whom a blow is aimed at; the role is looked up at the moment it falls."""


class Strike(BaseModel):
    """When, which fault, whom, how long. `pick` decides among several candidates, so that a schedule needs no chance."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_s: float = Field(ge=0, description="seconds after the schedule's start")
    fault: str
    who: Who = "any"
    pick: float = Field(default=0, ge=0, lt=1)
    seconds: float = Field(default=1, ge=0, description="how long it lasts; then it is healed")

    @property
    def ends_s(self) -> float:
        return self.at_s + self.seconds

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.fault} {self.who} for {self.seconds:.1f} s"
