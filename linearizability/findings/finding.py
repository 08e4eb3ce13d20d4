"""One finding: its folder's `finding.json`, with the way to reproduce it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

HOME = Path(__file__).parent
DESCRIPTION, PAGE = "finding.json", "README.md"


class UnknownFinding(Exception):
    """There is no finding with that name."""


class Outcome(BaseModel):
    """The outcome of a reproduction on one target."""

    verdict: Literal["shown", "not shown", "could not run"]
    target: str
    seen: list[str] = []
    seconds: float = 0
    day: str = ""


class Reproduction(BaseModel):
    """The way to reproduce a finding."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["clients", "test", "requirement", "hunt"]
    """Unmodified clients (`reproduction.py`), a test of the repository, a requirement of the suite, a hunt until it is found."""
    arguments: list[str] = []
    """The test's file, the requirement, or the hunt's options."""
    shows: list[str] = []
    """A part of the requirement's line, or a rule in the hunt's verdict, that shows the finding."""
    suffix: str = ""
    """The suffix of `kafka:VERSION` where the target has no number of nodes."""


class Finding(BaseModel):
    """The facts about one finding, beside its page."""

    model_config = ConfigDict(extra="forbid")

    title: str
    happens: str
    """The effect on a user, in one sentence."""
    releases: list[str]
    """The releases where it was shown; the first is the default target."""
    status: str
    minutes: float = Field(description="how long the reproduction takes, about")
    reproduction: Reproduction
    outcomes: list[Outcome] = []
    """The stored runs of its reproduction."""


def names() -> list[str]:
    return sorted(path.parent.name for path in HOME.glob(f"*/{DESCRIPTION}"))


def load(name: str) -> Finding:
    """The finding with this name. Errors: UnknownFinding."""
    folder = name.replace("-", "_")
    if folder not in names():
        raise UnknownFinding(f"{name!r} is none of {', '.join(names())}")
    return Finding.model_validate_json((HOME / folder / DESCRIPTION).read_text())


def page(name: str) -> str:
    """The finding's page, as Markdown. Errors: UnknownFinding."""
    load(name)
    return (HOME / name.replace("-", "_") / PAGE).read_text()
