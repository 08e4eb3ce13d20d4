"""The models: which module, which configuration, what is expected, and which switch must break it.

A model is a configuration file `replication/MC….cfg` whose first line names its module. A switch is checked with the very
configuration of its clean model, in which nothing but the line `Bugs = {}` (or one definition of a module) and the list of what
is checked is replaced, so that nothing else can be the cause of the violation. What comes of that is kept for readers and for TLC
by hand as `replication/counterexamples/…Breaks….cfg`: generated (`spec.tables`), never written.
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
    """A change of one definition's text, for a switch that would only be in the reader's way there."""

    definition: str
    """With its module: Replica.ExpandIsr."""
    was: str
    becomes: str

    @property
    def module(self) -> str:
        return self.definition.partition(".")[0]

    @property
    def name(self) -> str:
        """The definition's, without its module."""
        return self.definition.partition(".")[2]

    def of(self, folder: str) -> str:
        """The module with the change. Errors: ValueError unless the definition has the text exactly once."""
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
    """Not to be caught within this time fails the build."""
    edit: Edit | None = None
    """What it changes, where it is not among the bugs of the modules."""


@dataclass(frozen=True)
class Model:
    """A configuration that must hold, and the switches that must break it."""

    name: str
    folder: str
    switches: tuple[Switch, ...] = ()
    budget_s: float = 900
    quick: bool = False
    """Small enough for every run of the tests."""
    behaviours: int = 0
    """More than 0: so many random behaviours are drawn, instead of all states being visited."""
    covered: bool = True
    """Whether actions are counted, which costs half of the time again."""
    length: int = 120
    """Of a drawn behaviour, in states."""
    workers: int = 1
    """TLC's worker threads, where nothing else is asked for."""

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
        """Whether the switch breaks what must happen in the end: TLC does not say which such property breaks first."""
        kind = checked(self.model.text).get(self.expected_property)
        return kind == "PROPERTY" and "SPECIFICATION FairSpec" in self.model.text

    @property
    def quick(self) -> bool:
        return self.model.quick

    @property
    def path(self) -> Path:
        """The configuration's file; a switch's name says that a counterexample is expected, and of what. One that changes a
        definition has its model's."""
        if not self.switch or self.switch.edit:
            return self.model.path
        return SPEC / self.model.folder / COUNTEREXAMPLES / f"{self.switch.name}Breaks{self.switch.violates}.cfg"

    def configuration(self) -> str:
        """The configuration's text as TLC gets it."""
        text = self.with_all_promises()
        return only_property(text, self.switch.violates) if self.switch else text

    def with_all_promises(self) -> str:
        """The model's configuration, in which the switch is on and nothing else is another."""
        text = self.model.text
        if not self.switch or self.switch.edit:
            return text
        switched = re.sub(r"^(\s*Bugs = )\{\}$", rf'\1{{"{self.switch.name}"}}', text, count=1, flags=re.M)
        if switched == text:
            raise ValueError(f"{self.model.path}: no line `Bugs = {{}}`")
        return switched

    @property
    def workers(self) -> int:
        """A switch has one: with several the trace need not be the shortest."""
        return 1 if self.switch else self.model.workers

    def job(self, workers: int | None = None, memory_mb: int = 3000) -> Job:
        """The run of TLC, with the case's own workers where none are named. Only clean models need the coverage of actions."""
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
        """Changes whenever a stored result no longer speaks of this case; what is only said in comments does not count."""
        job = self.job()
        digest = hashlib.sha256(without_comments(job.configuration).encode())
        digest.update(repr((job.module, job.workers, job.coverage, job.options)).encode())
        for module in modules_of(SPEC / self.model.folder, self.model.module):
            digest.update(without_comments(job.modules.get(module.stem) or module.read_text()).encode())
        return digest.hexdigest()[:16]


def without_comments(text: str) -> str:
    """The lines of a module or a configuration that TLC acts by; their indentation counts in TLA+, so it stays."""
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
    """What a configuration checks: name -> INVARIANT or PROPERTY."""
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
    """The configuration with this one promise left to be checked; it must be among those that the clean model keeps."""
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
