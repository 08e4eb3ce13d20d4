"""Requirements: their records, the decorator that registers a test with its record, and the catalogue of all of them.

A requirement is one function with one record. The records are the catalogue: `list`, `explain`, the reports and the
documentation are generated from them. `requirements/` holds one module for each area; importing a module registers its
requirements.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from conformance.dependencies import dependencies_of
from conformance.levels import LEVEL_OF, Level, kind_of
from conformance.profiles import ConformanceProfile, profile_of

if TYPE_CHECKING:
    from conformance.broker import Broker

CONFIRMATIONS = Path(__file__).parent / "requirements" / "confirmed.json"
"""Kafka version -> ids that passed on it; written by `tidegauge run --confirm`, never by hand."""


AREAS = {
    "BAS": "Basics: what every other requirement builds on",
    "FRM": "Framing, headers, malformed input",
    "API": "Version negotiation",
    "MET": "Metadata, topic ids, cluster description",
    "FMT": "Message formats 0 and 1",
    "PRD": "Produce: validation",
    "ACK": "Produce: acks, durability, timestamps, compression",
    "FET": "Fetch: limits, visibility, isolation",
    "FSS": "Fetch sessions",
    "EPO": "Leader epochs: fencing and truncation detection",
    "LOF": "List offsets",
    "IDM": "Idempotent producer",
    "TXN": "Transactions: coordinator",
    "TXV": "Transactions: visibility",
    "COO": "Find coordinator",
    "GRP": "Classic group membership",
    "OFF": "Offset commit, fetch, delete, expiry",
    "CGH": "KIP-848 consumer groups",
    "GAD": "Group administration",
    "TOP": "Topic administration",
    "CFG": "Configurations",
    "ACL": "Access control: what is refused, and what is hidden",
    "REP": "Replication: in-sync replicas, high watermark",
    "ELE": "Leader election, fail-over, reassignment",
    "RET": "Retention and segments",
    "CMP": "Compaction",
    "HIS": "Delivery histories",
    "SEC": "Authentication by SASL",
    "QTA": "Quotas of clients",
    "OPT": "Optional areas",
}
"""Area code -> its title, in the order of reports."""


WITHOUT_ZOOKEEPER = "3.3"
"""The first release with KRaft, unless it is started with ZooKeeper (`Requirement.kraft`)."""
COPY_ON_ANOTHER_NODE = "BAS-14"
"""The requirement that a follower's copy of a record can be observed."""
REPLICATED_AREAS = ("ACK", "EPO", "ELE", "REP", "RET")
"""Areas whose requirements with several nodes are about replication: all of them require COPY_ON_ANOTHER_NODE."""


class Needs(BaseModel):
    """The features that a target must have before the requirement can be judged; a missing one skips it, with the reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(default=1, ge=1, description="brokers in the cluster")
    configs: dict[str, str] = Field(
        default_factory=dict,
        description="broker configurations that must be in force: the target is restarted with them where it can be",
    )
    alone: bool = Field(
        default=False, description="the configurations must not be mixed with those of other requirements"
    )
    hooks: tuple[str, ...] = Field(
        default=(), description="fault hooks of the target: kill, restart, pause, power-loss ..."
    )
    apis: dict[str, int] = Field(
        default_factory=dict, description="API name -> lowest version that the target must advertise"
    )


class Requirement(BaseModel):
    """The record of one requirement."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[A-Z]{3}-\d{2,3}$", description="its address, as in `tidegauge run FRM-04`")
    level: Level
    notices: str = Field(default="", description="kind, colon, and who notices where it does not hold (`levels.Kind`)")
    sentence: str = Field(min_length=10, description="condition and required observable behaviour, in one sentence")
    source: str = Field(min_length=2, description="KIP, documentation, or the place in Kafka's sources")
    accepted: str = Field(default="", description="what passes")
    tolerated: str = Field(default="", description="what passes with a note")
    since: str = Field(default="", description="first Kafka version that owes it; empty: all")
    until: str = Field(default="", description="last Kafka version that owes it; empty: all")
    kraft: bool = Field(default=False, description="owed only where KRaft coordinates the brokers, and no ZooKeeper")
    needs: Needs = Needs()
    requires: tuple[str, ...] = Field(
        default=(), description="requirements that must hold before this one can be judged"
    )
    exclusive: bool = Field(default=False, description="touches what other requirements see: it is judged alone")
    deadline_s: float = Field(default=20.0, gt=0, description="the longest that its test may take")
    untestable: str = Field(default="", description="why there is no test; empty: there is one")
    draft: str = Field(default="", description="what the draft catalogue said otherwise, and Kafka corrected")
    confirmed: tuple[str, ...] = Field(default=(), description="versions of Apache Kafka on which it was seen to pass")

    @field_validator("id")
    @classmethod
    def _known_area(cls, value: str) -> str:
        if value[:3] not in AREAS:
            raise ValueError(f"{value}: no such area; known are {', '.join(AREAS)}")
        return value

    @model_validator(mode="after")
    def _level_follows(self) -> Requirement:
        if self.notices and LEVEL_OF[kind_of(self.notices)] is not self.level:
            raise ValueError(f"{self.id}: {self.notices!r} makes no {self.level}")
        return self

    @property
    def profile(self) -> ConformanceProfile:
        """The profile of the requirement."""
        return profile_of(self.id)

    @property
    def prerequisites(self) -> tuple[str, ...]:
        """The requirements that must hold before this one can be judged: those it declares, and those its area implies."""
        copied = self.needs.nodes > 1 and self.area in REPLICATED_AREAS
        return (COPY_ON_ANOTHER_NODE, *self.requires) if copied else self.requires

    @property
    def owed(self) -> str:
        """The releases that owe it, as text; empty for all."""
        words = [f"since {self.since}" if self.since else "", f"until {self.until}" if self.until else ""]
        return " ".join([*filter(None, words), *["with KRaft"] * self.kraft])

    @property
    def builds_on(self) -> tuple[str, ...]:
        """The requirements that its test uses as steps: where it fails, and one of these fails too, it is blocked by that
        one."""
        return dependencies_of(self.id)

    @property
    def area(self) -> str:
        """The first three letters of its id."""
        return self.id[:3]

    @property
    def order(self) -> tuple[int, int]:
        """Its place in reports: by area, then by number."""
        return list(AREAS).index(self.area), int(self.id[4:])


Test = Callable[["Broker"], None]


class Entry(BaseModel):
    """A requirement with the function that tests it; the function is missing where the requirement is untestable."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    requirement: Requirement
    test: Callable[..., None] | None = None

    @property
    def module(self) -> str:
        """The module of `conformance.requirements` that holds the test."""
        return self.test.__module__ if self.test else ""


_entries: dict[str, Entry] = {}


class Declared(TypedDict, total=False):
    """The optional arguments of a requirement's declaration: fields of `Requirement` and of `Needs` in one level."""

    tolerated: str
    since: str
    until: str
    kraft: bool
    requires: Iterable[str]
    exclusive: bool
    deadline_s: float
    draft: str
    nodes: int
    configs: dict[str, str]
    alone: bool
    hooks: Iterable[str]
    apis: dict[str, int]


def requirement(
    id: str, *, notices: str, sentence: str, source: str, accepted: str, **declared: Unpack[Declared]
) -> Callable[[Test], Test]:
    """Register the function below as the test of this requirement."""
    needs = {name: value for name, value in declared.items() if name in Needs.model_fields}
    others: dict[str, Any] = {name: value for name, value in declared.items() if name not in needs}
    record = Requirement(
        id=id,
        level=LEVEL_OF[kind_of(notices)],
        notices=notices,
        sentence=sentence,
        source=source,
        accepted=accepted,
        needs=Needs.model_validate(needs),
        confirmed=confirmed_on(id),
        **others,
    )

    def register(test: Test) -> Test:
        _register(Entry(requirement=record, test=test))
        return test

    return register


def untestable(id: str, *, notices: str, sentence: str, source: str, reason: str, **declared: Unpack[Declared]) -> None:
    """Register a requirement that cannot be tested from outside a broker, with the reason."""
    others: dict[str, Any] = {**declared}
    record = Requirement(
        id=id,
        level=LEVEL_OF[kind_of(notices)],
        notices=notices,
        sentence=sentence,
        source=source,
        untestable=reason,
        **others,
    )
    _register(Entry(requirement=record))


def _register(entry: Entry) -> None:
    id = entry.requirement.id
    if id in _entries:
        raise ValueError(f"{id} is registered twice: in {_entries[id].module} and in {entry.module}")
    _entries[id] = entry


@cache
def _confirmations(path: Path) -> dict[str, list[str]]:
    return json.loads(path.read_text()) if path.exists() else {}


def confirmed_on(id: str) -> tuple[str, ...]:
    """The versions of Apache Kafka on which this requirement passed in a run with --confirm."""
    held = _confirmations(CONFIRMATIONS)
    return tuple(sorted((version for version, ids in held.items() if id in ids), key=version_key))


def confirm(version: str, passed: Iterable[str], judged: Iterable[str]) -> None:
    """Store the requirements that passed on a version of Apache Kafka. Judged ones that did not pass lose their
    confirmation."""
    _confirmations.cache_clear()
    held = dict(_confirmations(CONFIRMATIONS))
    held[version] = sorted((set(held.get(version, ())) - set(judged)) | set(passed))
    ordered = {key: held[key] for key in sorted(held, key=version_key)}
    CONFIRMATIONS.write_text(json.dumps(ordered, indent=1) + "\n")
    _confirmations.cache_clear()


@cache
def catalogue() -> dict[str, Entry]:
    """All requirements by id, in the order of reports."""
    package = importlib.import_module("conformance.requirements")
    for module in pkgutil.iter_modules(package.__path__, "conformance.requirements."):
        importlib.import_module(module.name)
    return dict(sorted(_entries.items(), key=lambda item: item[1].requirement.order))


def select(
    patterns: Iterable[str] = (),
    *,
    levels: Iterable[Level] = (),
    profiles: Iterable[ConformanceProfile] = (),
    version: str = "",
) -> list[Entry]:
    """Requirements by ids (`PRD-05`), areas (`PRD`), ranges (`PRD-05..PRD-09`), level, profile and Kafka version.

    Errors: ValueError when a pattern matches no requirement.
    """
    chosen: dict[str, Entry] = {}
    entries = catalogue()
    for pattern in patterns:
        found = [id for id in entries if _matches(id, pattern.upper())]
        if not found:
            raise ValueError(
                f"{pattern} names no requirement: give an id (PRD-05), a range (PRD-05..PRD-09) or an area"
            )
        chosen.update((id, entries[id]) for id in found)
    picked = list((chosen or entries).values())
    wanted, parts = set(levels), set(profiles)
    picked = [entry for entry in picked if not wanted or entry.requirement.level in wanted]
    picked = [entry for entry in picked if not parts or entry.requirement.profile in parts]
    picked = [entry for entry in picked if not version or owed_by(entry.requirement, version)]
    return sorted(picked, key=lambda entry: entry.requirement.order)


def _matches(id: str, pattern: str) -> bool:
    first, dots, last = pattern.partition("..")
    if dots:
        return id[:4] == first[:4] == last[:4] and int(first[4:]) <= int(id[4:]) <= int(last[4:])
    return pattern in (id, id[:3])


def owed_by(record: Requirement, version: str, *, by_zookeeper: bool = False) -> bool:
    """Whether a broker of this Kafka version owes the requirement. `by_zookeeper`: coordinated by ZooKeeper, as releases up
    to 3.9 can be."""
    if record.kraft and by_zookeeper:
        return False
    key = version_key(version)
    return (not record.since or key >= version_key(record.since)) and (
        not record.until or key[: len(version_key(record.until))] <= version_key(record.until)
    )


def version_key(version: str) -> tuple[int, ...]:
    """The numbers of a version, so that `4.10.1` comes after `4.9`. A snapshot (`4.4.0-SNAPSHOT`) counts as its release."""
    return tuple(int(number) for number in re.findall(r"\d+", version.split("-")[0]))


def record_as_json(record: Requirement) -> dict[str, Any]:
    """The record as `list --json` prints it."""
    return {"area": record.area, "profile": record.profile, **record.model_dump(mode="json")}
