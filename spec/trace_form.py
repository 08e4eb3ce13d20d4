"""The common part of all traces: rows of JSON, errors of files that are no traces, and the modules for TLC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


class TraceError(ValueError):
    """The file is not a trace; the message has the line and the reason."""


def lacking_arguments(row: Event, arguments: Mapping[str, tuple[str, ...]], where: str, of: str = "") -> list[str]:
    """The arguments of its action that an event lacks. Errors: TraceError for an unknown action."""
    action = row.get("action", "")
    if action not in arguments:
        raise TraceError(f"{where}: no action{of} is called {action!r}")
    return [argument for argument in arguments[action] if argument not in row.get("args", {})]


# ---- TLA+


def record(fields: Mapping[str, str]) -> str:
    """A TLA+ record; the values are TLA+ already."""
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in fields.items()) + "]"


def names_of(prefix: str, count: int, *more: str) -> str:
    """A set of short names: `{"p1", "p2"}`."""
    return strings([*(f"{prefix}{number}" for number in range(1, count + 1)), *more])


def strings(all: Iterable[str]) -> str:
    """A set of strings."""
    return "{" + ", ".join(f'"{each}"' for each in all) + "}"


def data_module(extended: str, definitions: Iterable[str], traces: Sequence[str]) -> str:
    """The module TraceData: each trace a definition of its own, so that none is too long for the parser's stack."""
    named = [f"Trace{number} == {trace}" for number, trace in enumerate(traces, 1)]
    listed = ", ".join(f"Trace{number}" for number in range(1, len(named) + 1))
    head = ["---- MODULE TraceData ----", f"EXTENDS {extended}", "", *definitions]
    return "\n".join([*head, *named, f"Traces == <<{listed}>>", "===="]) + "\n"


def events_of(events: Iterable[str]) -> str:
    """A sequence of records, one a line."""
    return "<<\n  " + ",\n  ".join(events) + ">>"


def configuration(about: str, constants: Iterable[str], deadlock: bool, specification: str = "TraceSpec") -> str:
    """A Trace… module's configuration. With `deadlock` TLC stops at the first event that no action allows, as a deadlock;
    without it TLC prints the number of each accepted trace."""
    lines = [f"\\* {about}", f"SPECIFICATION {specification}", "CONSTANTS", *(f"  {each}" for each in constants)]
    lines += [f"  Guarded = {'FALSE' if deadlock else 'TRUE'}", f"CHECK_DEADLOCK {'TRUE' if deadlock else 'FALSE'}"]
    return "\n".join([*lines, f"INVARIANTS {'KeepsPromises' if deadlock else 'Accepted'}"]) + "\n"


# ---- traces of coordinators


class PartitionNames:
    """Short names for partitions, numbered in the order in which a trace names them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def short(self, name: str) -> str:
        return self._names.setdefault(name, f"p{len(self._names) + 1}")

    def long(self) -> dict[str, str]:
        """Short name -> name of each partition."""
        return {short: name for name, short in self._names.items()}

    def shorts(self, names: Iterable[str]) -> str:
        """The short names of these partitions as a TLA+ set."""
        return strings(self.short(name) for name in names)


@dataclass(frozen=True)
class ShardTrace:
    """The trace of one group or transactional id."""

    name: str
    events: tuple[Event, ...]
    book: str
    """The folder of the specification."""

    run = ()
    """All traces of a book may share a run of TLC."""
