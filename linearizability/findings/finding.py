"""One finding: its folder's `finding.json`, and how it is reproduced."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

HOME = Path(__file__).parent
DESCRIPTION, PAGE = "finding.json", "README.md"


class UnknownFinding(Exception):
    """There is no finding of that name."""


class Outcome(BaseModel):
    """What a reproduction came to, on one target."""

    verdict: Literal["shown", "not shown", "could not run"]
    target: str
    seen: list[str] = []
    seconds: float = 0
    day: str = ""


class Reproduction(BaseModel):
    """How a finding is shown."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["clients", "test", "requirement", "hunt"]
    """Unmodified clients (`reproduction.py`), a test of the repository, a requirement of the suite, a hunt until it is found."""
    arguments: list[str] = []
    """The test's file, the requirement, or the hunt's options."""
    shows: list[str] = []
    """What is part of the requirement's line, or which rule the hunt's verdict names, where the finding is shown."""
    suffix: str = ""
    """What is put behind `kafka:VERSION` where the target does not say how many nodes it has."""


class Finding(BaseModel):
    """What is known of one finding, beside its page."""

    model_config = ConfigDict(extra="forbid")

    title: str
    happens: str
    """What happens to a user, in one sentence."""
    releases: list[str]
    """Where it was shown; the first is the target unless another is given."""
    status: str
    minutes: float = Field(description="how long the reproduction takes, about")
    reproduction: Reproduction
    outcomes: list[Outcome] = []
    """Runs that are kept."""


def names() -> list[str]:
    return sorted(path.parent.name for path in HOME.glob(f"*/{DESCRIPTION}"))


def load(name: str) -> Finding:
    """Errors: UnknownFinding."""
    folder = name.replace("-", "_")
    if folder not in names():
        raise UnknownFinding(f"{name!r} is none of {', '.join(names())}")
    return Finding.model_validate_json((HOME / folder / DESCRIPTION).read_text())


def page(name: str) -> str:
    """The finding's page, as Markdown. Errors: UnknownFinding."""
    load(name)
    return (HOME / name.replace("-", "_") / PAGE).read_text()
