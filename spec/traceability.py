"""TRACEABILITY.md: for each step of the specification its method, event, promises, requirements and tests.

Methods and events are found in the sources by the step's name. Tests are marked with the steps that they take
(`@pytest.mark.step`), and fail if they do not call the step's method (`tests/conftest.py`). Requirements' ids, and the reasons
for missing counterparts, are kept by hand (`counterparts.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spec.actions import ACTIONS, method_name
from spec.catalogue import MODELS
from spec.counterparts import (
    BOOKS,
    METHODS,
    NO_EVENT,
    NO_METHOD,
    NO_REQUIREMENT,
    NOT_BY_NAME,
    NOT_THE_BROKERS,
    REQUIREMENTS,
    UNCALLED,
)
from spec.models import SPEC
from spec.tla_text import blanked

ROOT = SPEC.parent
TESTS = "tests"

TRACED = r'(trace_step\(\s*|return |yield |\(|else |action = )"{step}"'
"""Where a step is traced, or where a decision's event is derived from its records (`controller/decision_tracing.py`)."""


@dataclass(frozen=True)
class Row:
    """One step and its counterparts; `missing` has the reasons for those that are empty."""

    action: str
    method: str
    places: tuple[str, ...]
    traced_in: tuple[str, ...]
    promises: tuple[str, ...]
    """Promises that a switch inside this step breaks."""
    requirements: tuple[str, ...]
    tests: tuple[str, ...]
    """Tests that are marked with the step, as `file::name`."""
    missing: tuple[str, ...]


# ---- the modules


def steps_of(folder: str) -> list[str]:
    """The names of a folder's steps, in the order of its modules."""
    texts = {path.stem: path.read_text() for path in sorted((SPEC / folder).glob("*.tla"))}
    named = [name for text in texts.values() for name in re.findall(r'Step\("(\w+)"', text)]
    order = [action.name for action in ACTIONS] if folder == "replication" else named
    return [name for name in dict.fromkeys(order) if name in named]


DEFINITION = re.compile(r"^(\w+)(?:\([^)]*\))? ==(.*?)(?=^\w+(?:\([^)]*\))? ==|^---|^===|\Z)", re.S | re.M)


def definitions(folder: str) -> dict[str, str]:
    """Operator -> its text without comments, for all modules of a folder."""
    found: dict[str, str] = {}
    for path in sorted((SPEC / folder).glob("*.tla")):
        found |= dict(DEFINITION.findall(blanked(path.read_text())))
    return found


def promises_of(step: str, folder: str) -> tuple[str, ...]:
    """The promises that switches break inside a step or in the operators that it uses, each with these switches."""
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
        if switch.name in bugs or (switch.edit and switch.edit.name in seen):
            broken.setdefault(switch.violates, []).append(switch.name)
    return tuple(f"{promise} ({', '.join(switches)})" for promise, switches in broken.items())


# ---- the broker, its tests, the suite


@cache
def _sources(folder: str) -> tuple[tuple[str, str], ...]:
    return tuple((str(path.relative_to(ROOT)), path.read_text()) for path in sorted((ROOT / folder).rglob("*.py")))


@cache
def _of_book(book: str) -> tuple[tuple[str, str], ...]:
    """(path, text) of the broker's files that are searched for a book's steps."""
    return tuple((name, text) for name, text in _sources("reference") if name.startswith(BOOKS[book][1]))


@cache
def _methods(book: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, text in _of_book(book):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name.removeprefix("_"), []).append(name)
    return {name: tuple(dict.fromkeys(places)) for name, places in found.items()}


def method_of(step: str, book: str) -> tuple[str, tuple[str, ...]]:
    """The name of a step's method in the broker, and the files that define it: none if there is no such method."""
    method = METHODS.get((book, step), method_name(step))
    return method, _methods(book).get(method, ())


def is_taken(book: str, step: str, called: Container[tuple[str, str]]) -> bool:
    """Whether a step's method is among the calls (file, name); True for a step without a method."""
    method, places = method_of(step, book)
    return not places or any((str(ROOT / place), method) in called for place in places)


@cache
def marked_tests() -> dict[tuple[str, str], tuple[str, ...]]:
    """(book, step) -> the tests that are marked with it by `@pytest.mark.step(book, step, …)`."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, text in _sources(TESTS):
        if "mark.step(" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef):
                    for book, step in _marks(node):
                        found.setdefault((book, step), []).append(f"{name}::{node.name}")
    return {key: tuple(tests) for key, tests in found.items()}


def _marks(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.step":
            book, *steps = (ast.literal_eval(argument) for argument in decorator.args)
            yield from ((book, step) for step in steps)


def rows(book: str) -> list[Row]:
    """A book's steps with their counterparts."""
    return [_row(step, book) for step in steps_of(book)]


def _row(step: str, book: str) -> Row:
    method, places = method_of(step, book)
    traced = _mentioning(TRACED.format(step=step), book)
    promises, tests = promises_of(step, book), marked_tests().get((book, step), ())
    requirements = REQUIREMENTS.get(book, {}).get(step, ())
    reasons = [
        "" if places else NO_METHOD.get(book, {}).get(step, ""),
        "" if traced else NO_EVENT.get(book, {}).get(step, ""),
        "" if promises else NO_SWITCH,
        "" if requirements else NO_REQUIREMENT.get(book, {}).get(step, ""),
    ]
    whole = NOT_BY_NAME.get(book, "") or NOT_THE_BROKERS.get(book, {}).get(step, "")
    missing = tuple(reason for reason in dict.fromkeys([whole, *reasons, UNCALLED.get((book, step), "")]) if reason)
    return Row(step, method, places, traced, promises, requirements, tests, missing)


NO_SWITCH = "no switch changes it"


def _mentioning(pattern: str, book: str) -> tuple[str, ...]:
    return tuple(name for name, text in _of_book(book) if re.search(pattern, text))


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
        "marks one that has no function there yet. Tests are those that are marked with the step; one that does not",
        "call the step's method fails. What lacks a counterpart says why in the last column. Generated by",
        "`python -m spec.tables`.",
    ]
    for folder, (title, _) in BOOKS.items():
        lines += ["", f"## {title}", ""]
        lines += [
            "| action | method, in | event traced in | promises | requirements | tests | lacks |",
            "| --- " * 7 + "|",
        ]
        lines += [_line(row) for row in rows(folder)]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    method = f"`{row.method}`: {_files(row.places)}" if row.places else ""
    numbers = ", ".join(number if number in _in_the_suite() else f"{number}°" for number in row.requirements)
    cells = [row.action, method, _files(row.traced_in), ", ".join(row.promises), numbers, _files(row.tests)]
    cells.append("; ".join(row.missing))
    return "| " + " | ".join(cells) + " |"


def _files(names: Iterable[str]) -> str:
    return ", ".join(str(Path(name).relative_to(Path(name).parts[0])) for name in names)
