"""The models: module, configuration, expected verdict, and the switches that must break each.

A model is a configuration file `replication/MC….cfg` whose first line names its module. A switch is checked with the
configuration of its clean model. Only the line `Bugs = {}` (or one definition of a module) and the list of checked properties
are replaced, so nothing else can cause the violation. `spec.tables` generates these configurations as
`replication/counterexamples/…Breaks….cfg`, for readers and for running TLC by hand.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spec.checker import LONG_RUN, SHORT_RUN, Job, Verdict
from spec.tla_text import definitions_of

SPEC = Path(__file__).parent
COUNTEREXAMPLES = "counterexamples"
FIRST_LINE = re.compile(r"\\\* (\w+): (.+)")


@dataclass(frozen=True)
class Edit:
    """A change of one definition's text, for a switch that would make the module harder to read."""

    definition: str
    """Module and name: Replica.ExpandIsr."""
    was: str
    becomes: str

    @property
    def module(self) -> str:
        return self.definition.partition(".")[0]

    @property
    def name(self) -> str:
        """The definition's name without its module."""
        return self.definition.partition(".")[2]

    def of(self, folder: str) -> str:
        """The text of the changed module. Errors: ValueError unless the definition has the text `was` exactly once."""
        text = (SPEC / folder / f"{self.module}.tla").read_text()
        body = definitions_of(self.module, text)[self.name].body
        kept = text[body.begin : body.end]
        if kept.count(self.was) != 1:
            raise ValueError(f"{self.definition}: {kept.count(self.was)} places, not one, for {self.was!r}")
        return text[: body.begin] + kept.replace(self.was, self.becomes) + text[body.end :]


@dataclass(frozen=True)
class Switch:
    """A known bug, the promise that it breaks, and its source."""

    name: str
    violates: str
    source: str
    story: str
    budget_s: float = 600
    """Time for TLC to find the violation; a switch that is not caught within it fails the build."""
    edit: Edit | None = None
    """The change, if the switch is not among the `KnownBugs` of the modules."""


@dataclass(frozen=True)
class Model:
    """A configuration that must hold, and the switches that must break it."""

    name: str
    folder: str
    switches: tuple[Switch, ...] = ()
    budget_s: float = 900
    quick: bool = False
    """Whether the model is small enough for every run of the tests."""
    behaviours: int = 0
    """The number of random behaviours to draw; 0: visit all states instead."""
    covered: bool = True
    """Whether TLC counts actions (coverage), which takes half as much time again."""
    length: int = 120
    """The length of a random behaviour, in states."""
    workers: int = 1
    """The default number of TLC's worker threads."""

    @property
    def path(self) -> Path:
        return SPEC / self.folder / f"{self.name}.cfg"

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def module(self) -> str:
        return self._first_line()[0]

    @property
    def purpose(self) -> str:
        return self._first_line()[1]

    def _first_line(self) -> tuple[str, str]:
        found = FIRST_LINE.match(self.text)
        if not found:
            raise ValueError(f"{self.path}: the first line must be `\\* Module: purpose`")
        return found[1], found[2].strip()


@dataclass(frozen=True)
class Case:
    """One thing to check: a clean model, or a model with one switch on."""

    model: Model
    switch: Switch | None = None

    @property
    def name(self) -> str:
        return self.switch.name if self.switch else self.model.name

    @property
    def expected(self) -> Verdict:
        if self.switch:
            return Verdict.VIOLATED
        return Verdict.SEARCHED if self.model.behaviours else Verdict.HOLDS

    @property
    def expected_property(self) -> str:
        return self.switch.violates if self.switch else ""

    @property
    def is_live(self) -> bool:
        """Whether the switch breaks a liveness property: TLC does not report which of these breaks first."""
        kind = checked(self.model.text).get(self.expected_property)
        return kind == "PROPERTY" and "SPECIFICATION FairSpec" in self.model.text

    @property
    def quick(self) -> bool:
        return self.model.quick

    @property
    def path(self) -> Path:
        """The configuration's file. A switch's file is named after the switch and the property that it breaks; a switch that
        changes a definition has its model's file."""
        if not self.switch or self.switch.edit:
            return self.model.path
        return SPEC / self.model.folder / COUNTEREXAMPLES / f"{self.switch.name}Breaks{self.switch.violates}.cfg"

    def configuration(self) -> str:
        """The text of the configuration for TLC: of a switch with its one property alone."""
        text = self.with_all_promises()
        return only_property(text, self.switch.violates) if self.switch else text

    def with_all_promises(self) -> str:
        """The model's configuration, changed only in that the switch is on. Errors: ValueError if it has no line `Bugs = {}`."""
        text = self.model.text
        if not self.switch or self.switch.edit:
            return text
        switched = re.sub(r"^(\s*Bugs = )\{\}$", rf'\1{{"{self.switch.name}"}}', text, count=1, flags=re.M)
        if switched == text:
            raise ValueError(f"{self.model.path}: no line `Bugs = {{}}`")
        return switched

    @property
    def workers(self) -> int:
        """The default number of workers; 1 for a switch, because with more its trace need not be the shortest."""
        return 1 if self.switch else self.model.workers

    def job(self, workers: int | None = None, memory_mb: int = 3000) -> Job:
        """The run of TLC; `workers` defaults to the case's own. Coverage of actions is for clean models only."""
        return Job(
            folder=SPEC / self.model.folder,
            module=self.model.module,
            configuration=self.configuration(),
            budget_s=self.switch.budget_s if self.switch else self.model.budget_s,
            memory_mb=memory_mb,
            workers=workers or self.workers,
            coverage=self.switch is None and not self.model.behaviours and self.model.covered,
            options=self._simulation(),
            jvm=SHORT_RUN if self.switch or self.quick else LONG_RUN,
            modules=self._edited(),
        )

    def _edited(self) -> dict[str, str]:
        edit = self.switch.edit if self.switch else None
        return {edit.module: edit.of(self.model.folder)} if edit else {}

    def _simulation(self) -> tuple[str, ...]:
        drawn = self.model.behaviours
        return ("-simulate", f"num={drawn}", "-depth", str(self.model.length), "-seed", "1") if drawn else ()

    def digest(self) -> str:
        """A digest of everything that decides the result, without comments: a stored result with another digest is stale."""
        job = self.job()
        digest = hashlib.sha256(without_comments(job.configuration).encode())
        digest.update(repr((job.module, job.workers, job.coverage, job.options)).encode())
        for module in modules_of(SPEC / self.model.folder, self.model.module):
            digest.update(without_comments(job.modules.get(module.stem) or module.read_text()).encode())
        return digest.hexdigest()[:16]


def without_comments(text: str) -> str:
    """The lines of a module or a configuration without comments and blank lines. Indentation is kept: TLA+ depends on it."""
    stripped = re.sub(r"\(\*.*?\*\)|\\\*.*", "", text)
    return "\n".join(line.rstrip() for line in stripped.splitlines() if line.strip())


def modules_of(folder: Path, name: str) -> list[Path]:
    """A module's file and those of all modules that it extends or instantiates, in a fixed order."""
    found: dict[str, Path] = {}
    waiting = [name]
    while waiting:
        module = waiting.pop()
        path = folder / f"{module}.tla"
        if module in found or not path.exists():
            continue
        found[module] = path
        waiting += _named_in(path.read_text())
    return [found[module] for module in sorted(found)]


@cache
def _named_in(text: str) -> tuple[str, ...]:
    """The modules that a module's text extends or instantiates."""
    extended = re.findall(r"^EXTENDS ([\w, \n]+?)(?=\n\s*\n|\n[A-Z-])", text, re.M)
    return (*re.findall(r"\w+", " ".join(extended)), *re.findall(r"\bINSTANCE (\w+)", text))


def checked(text: str) -> dict[str, str]:
    """The properties that a configuration checks: name -> INVARIANT or PROPERTY."""
    found: dict[str, str] = {}
    section = ""
    for word in re.sub(r"\\\*.*", "", text).split():
        if word in KEYWORDS:
            section = "INVARIANT" if word.startswith("INV") else "PROPERTY" if word.startswith("PROPERT") else ""
        elif section:
            found[word] = section
    return found


KEYWORDS = {
    "SPECIFICATION",
    "CONSTANT",
    "CONSTANTS",
    "SYMMETRY",
    "VIEW",
    "CHECK_DEADLOCK",
    "INVARIANT",
    "INVARIANTS",
} | {
    "PROPERTY",
    "PROPERTIES",
    "CONSTRAINT",
    "CONSTRAINTS",
    "INIT",
    "NEXT",
}


def only_property(text: str, name: str) -> str:
    """The configuration with this property alone. Errors: ValueError if the configuration does not check it."""
    kinds = checked(text)
    if name not in kinds:
        raise ValueError(f"{name} is not checked by the clean configuration: {', '.join(kinds)}")
    lines = text.splitlines()
    kept: list[str] = []
    skipping = False
    for line in lines:
        first = line.split()[0] if line.split() else ""
        if first in KEYWORDS:
            skipping = first.startswith(("INVARIANT", "PROPERT"))
        if not skipping:
            kept.append(line)
    return "\n".join([*kept, f"{kinds[name]} {name}", ""])


def cases(models: tuple[Model, ...]) -> Iterator[Case]:
    """Each clean model, followed by its switches."""
    for model in models:
        yield Case(model)
        for switch in model.switches:
            yield Case(model, switch)
