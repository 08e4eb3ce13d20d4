"""TRACEABILITY.md: which step of the specification is which method, event, promise, requirement and test.

Nothing here is kept by hand but the requirements' ids and the reasons for what has no counterpart: methods, events and
tests are found in the source by the action's one name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spec.actions import ACTIONS, method_name
from spec.catalogue import MODELS
from spec.models import SPEC

ROOT = SPEC.parent
TESTS_SHOWN = 2
TESTS = ("tests/replication", "tests/controller", "tests/coordinator", "tests/node")
"""Where the broker's steps are tested one by one; clients and faults test them all at once."""

BOOKS: dict[str, tuple[str, str]] = {
    "replication": ("Replication", "reference"),
    "quorum": ("The metadata quorum", "reference/controller"),
    "transactions": ("Transactions", "reference/coordinator"),
    "groups": ("Consumer groups (KIP-848)", "reference/coordinator"),
    "historical": ("The ZooKeeper controller", ""),
}
"""Folder of the specification -> its title, and where in the broker its methods are to be looked for."""

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "RegisterBroker": ("REP-14", "REP-17", "ELE-17"),
    "UnfenceBroker": ("REP-14", "ELE-02"),
    "FenceBroker": ("REP-05", "REP-06", "ELE-01"),
    "ControlledShutdown": ("ELE-08", "REP-14"),
    "AlterPartition": ("REP-13", "REP-14"),
    "ElectLeader": ("ELE-04", "EPO-08"),
    "ElectUncleanLeader": ("ELE-02", "ELE-03", "ELE-06"),
    "Reassign": ("ELE-11", "ELE-12", "ELE-14"),
    "CallOffReassignment": ("ELE-15",),
    "ChangeMinIsr": ("REP-07", "ACK-09"),
    "BecomeLeader": ("ELE-01", "EPO-08", "EPO-04"),
    "BecomeFollower": ("EPO-08", "ELE-10"),
    "CommitIsr": ("REP-03", "REP-13"),
    "LearnMinIsr": ("REP-07",),
    "GiveUpReplica": ("ELE-11",),
    "AnswerFetch": ("REP-01", "EPO-01", "EPO-07"),
    "AppendFetched": ("REP-08", "EPO-09"),
    "AdoptHighWatermark": ("REP-12",),
    "Truncate": ("REP-09", "REP-10", "EPO-07", "EPO-10"),
    "AdvanceHighWatermark": ("REP-01", "REP-07"),
    "ExpandIsr": (
        "REP-04",
        "REP-19",
    ),
    "ShrinkIsr": ("REP-03", "REP-06", "REP-15"),
    "RollBackIsr": ("REP-14",),
    "Crash": ("REP-17", "REP-16"),
    "ShutDown": ("ELE-08", "REP-16"),
    "Restart": ("REP-16", "REP-17"),
    "Produce": ("ACK-01", "ACK-05", "ACK-07", "IDM-03"),
    "Retry": ("IDM-03", "IDM-04"),
    "Acknowledge": ("ACK-04", "ACK-06", "REP-02"),
    "Consume": ("REP-11", "FET-03"),
}

NO_METHOD = {
    "Crash": "happens to the broker: no code of it runs",
    "Retry": "a leader that appends cannot tell a retry from a first attempt: `produce`, after the sequence check",
}
"""Steps of replication that are no method of the broker, and why."""

NO_EVENT = {
    "Crash": "written by the world that kills the process",
    "Retry": "told as Produce",
}

NOT_IN_THE_BROKER = {
    "historical": "the reference has KRaft's controller; this one is kept to be compared with",
}
"""Folders without a counterpart in the broker, and why."""

TOLD = r'(tell\(\s*|return |yield |\(|else |action = )"{step}"'
"""Where a step is told, or where what is told of a decision is read off its records (`controller/telling.py`)."""

COUNTERPARTS = {"TakeOver": ("loaded", "TakeOver")}
"""Steps of the other folders whose method the broker calls otherwise, with its event: this one every shard has."""

ENVIRONMENT = {
    "DropWrite": "the network's",
    "LoseAnswer": "the network's",
    "TakeAnswer": "the client's",
    "LetGo": "the client's",
    "SendWrite": "the client's",
    "AppendWrite": "a partition leader's: told as Produce, with the producer",
    "AppendMarker": "a partition leader's: told as Produce, with producer and marker",
}
"""Steps of the other folders that are not the broker's, and whose they are."""


@dataclass(frozen=True)
class Row:
    """One step and its counterparts; an empty one has its reason in `missing`."""

    action: str
    method: str
    places: tuple[str, ...]
    told_in: tuple[str, ...]
    promises: tuple[str, ...]
    """Promises that a switch inside this step breaks."""
    requirements: tuple[str, ...]
    tests: tuple[str, ...]
    missing: str


# ---- the modules


def steps_of(folder: str) -> list[str]:
    """The names of a folder's steps, in the order of its modules."""
    texts = {path.stem: path.read_text() for path in sorted((SPEC / folder).glob("*.tla"))}
    named = [name for text in texts.values() for name in re.findall(r'Step\("(\w+)"', text)]
    order = [action.name for action in ACTIONS] if folder == "replication" else named
    return [name for name in dict.fromkeys(order) if name in named]


DEFINITION = re.compile(r"^(\w+)(?:\([^)]*\))? ==(.*?)(?=^\w+(?:\([^)]*\))? ==|^---|^===|\Z)", re.S | re.M)


def definitions(folder: str) -> dict[str, str]:
    """Operator -> its text, over all modules of a folder."""
    found: dict[str, str] = {}
    for path in sorted((SPEC / folder).glob("*.tla")):
        found |= dict(DEFINITION.findall(path.read_text()))
    return found


def promises_of(step: str, folder: str) -> tuple[str, ...]:
    """What the switches break that stand in the step or in what it uses."""
    operators = definitions(folder)
    waiting, seen, bugs = [step], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in operators:
            continue
        seen.add(name)
        body = operators[name]
        bugs |= set(re.findall(r'"(\w+)"', body))
        waiting += re.findall(r"\b[A-Z]\w+", body)
    broken: dict[str, list[str]] = {}
    for switch in (switch for model in MODELS if model.folder == folder for switch in model.switches):
        if switch.name in bugs:
            broken.setdefault(switch.violates, []).append(switch.name)
    return tuple(f"{promise} ({', '.join(switches)})" for promise, switches in broken.items())


# ---- the broker, its tests, the suite


@cache
def _sources(folder: str) -> tuple[tuple[str, str], ...]:
    return tuple((str(path.relative_to(ROOT)), path.read_text()) for path in sorted((ROOT / folder).rglob("*.py")))


@cache
def _methods(folder: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, text in _sources(folder):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name.removeprefix("_"), []).append(name)
    return {name: tuple(dict.fromkeys(places)) for name, places in found.items()}


def _mentioning(pattern: str, folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for name, text in _sources(folder):
            if re.search(pattern, text):
                yield name


def rows(folder: str) -> list[Row]:
    """A folder's steps with all that was found."""
    home = BOOKS[folder][1]
    return [_row(step, folder, home) for step in steps_of(folder)]


def _row(step: str, folder: str, home: str) -> Row:
    method, event = (
        COUNTERPARTS.get(step, (method_name(step), step)) if folder != "replication" else (method_name(step), step)
    )
    if step in ENVIRONMENT and folder != "replication":
        home = ""
    replicas = ("reference/replication", "reference/controller", "reference/node")
    homes = replicas if folder == "replication" else (home,)
    quorum = "reference/controller/quorum"
    places = [place for each in homes if each for place in _methods(each).get(method, ())]
    told = list(_mentioning(TOLD.format(step=event), homes if home and event else ()))
    tests = list(_mentioning(rf'\.{method}\(|"{event or step}"', TESTS)) if home else []
    if folder == "replication":
        places, told = ([name for name in names if not name.startswith(quorum)] for names in (places, told))
    elif folder == "quorum":
        places, told = ([name for name in names if name.startswith(quorum)] for names in (places, told))
    tests = [name for name in tests if "/test_" in name and ("quorum" in name) == (folder == "quorum")]
    return Row(
        action=step,
        method=method,
        places=tuple(dict.fromkeys(places)),
        told_in=tuple(dict.fromkeys(told)),
        promises=promises_of(step, folder),
        requirements=REQUIREMENTS.get(step, ()) if folder == "replication" else (),
        tests=tuple(tests[:TESTS_SHOWN]),
        missing=_reason(step, folder, bool(places), bool(told), bool(tests)),
    )


def _reason(step: str, folder: str, has_method: bool, has_event: bool, has_test: bool) -> str:
    if folder in NOT_IN_THE_BROKER:
        return NOT_IN_THE_BROKER[folder]
    if folder != "replication" and step in ENVIRONMENT:
        return ENVIRONMENT[step]
    told: list[str] = []
    if not has_method:
        told.append(_no_method(step, folder, has_event))
    if not has_event:
        told.append(
            NO_EVENT.get(step, "no event yet") if folder == "replication" else "no event yet" if has_method else ""
        )
    if not has_test and has_method:
        told.append("no test names it alone")
    return "; ".join(dict.fromkeys(text for text in told if text))


def _no_method(step: str, folder: str, has_event: bool) -> str:
    if folder == "replication":
        return NO_METHOD.get(step, "no method of this name yet")
    return "told inside the request's handler" if has_event else "not in the broker under this name"


@cache
def _in_the_suite() -> frozenset[str]:
    return frozenset(number for _, text in _sources("conformance") for number in re.findall(r'"([A-Z]{3}-\d\d)"', text))


# ---- the page


def traceability_page() -> str:
    """TRACEABILITY.md."""
    lines = [
        "# From the specification to the broker and back",
        "",
        "One line a step: the TLA+ action, the broker's method and the event of its trace bear one name. *Promises* are",
        "those that a switch (in brackets) inside the step, or in what the step uses, is known to break; every state is",
        "checked against all promises of its model, whatever the step. Requirements are those of the conformance suite; `°`",
        "marks one that has no function there yet. What lacks a counterpart says why in the last column. Generated by",
        "`python -m spec.tables`.",
    ]
    for folder, (title, _) in BOOKS.items():
        lines += ["", f"## {title}", ""]
        lines += [
            "| action | method, in | event told in | promises | requirements | tests | lacks |",
            "| --- " * 7 + "|",
        ]
        lines += [_line(row) for row in rows(folder)]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    method = f"`{row.method}`: {_files(row.places)}" if row.places else ""
    numbers = ", ".join(number if number in _in_the_suite() else f"{number}°" for number in row.requirements)
    cells = [row.action, method, _files(row.told_in), ", ".join(row.promises), numbers, _files(row.tests), row.missing]
    return "| " + " | ".join(cells) + " |"


def _files(names: Iterable[str]) -> str:
    return ", ".join(str(Path(name).relative_to(Path(name).parts[0])) for name in names)
