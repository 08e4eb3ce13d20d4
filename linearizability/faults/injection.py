"""One injection of a fault, as a value."""

from typing import Literal

from pydantic import BaseModel, Field

Who = Literal["any", "leader", "follower", "controller", "coordinator"]
"""The target's role, which is looked up when the fault is injected."""


class Injection(BaseModel, frozen=True, extra="forbid"):
    """Time, fault, target, duration. `pick` decides among several candidates, so that a schedule needs no chance."""

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
