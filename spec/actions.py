"""The steps of replication by their one name: TLA+ action, trace event, and (in snake case) the broker's method.

`replication/actions.toml` is the only list; ACTIONS.md is generated from it, and tests compare it with the modules and with the
broker.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Action:
    """One step: its actor, its arguments and its meaning."""

    name: str
    chapter: str
    """The module that defines it."""
    actor: str
    """The role that takes the step: controller, leader, follower, broker, or client."""
    arguments: tuple[str, ...]
    meaning: str

    @property
    def trace_arguments(self) -> tuple[str, ...]:
        """The arguments of a trace event: without `isr`, and with `end`, the offset after a record, for the record's number."""
        renamed = {"number": "end", "offset": "end"}
        return tuple(renamed.get(name, name) for name in self.arguments if name != "isr")

    @property
    def method(self) -> str:
        """The broker's method."""
        return method_name(self.name)


def method_name(action: str) -> str:
    """The snake case of an action's name."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()


def _actions() -> Iterator[Action]:
    for name, row in tomllib.loads(files("spec").joinpath("replication", "actions.toml").read_text()).items():
        yield Action(name, row.pop("chapter"), row.pop("actor"), tuple(row.pop("arguments")), **row)


ACTIONS: tuple[Action, ...] = (*_actions(),)


def actions_page() -> str:
    """ACTIONS.md."""
    lines = [
        "# The steps of replication",
        "",
        "One name each: the TLA+ action, the trace event, and in snake case the broker's method. Generated from",
        "`replication/actions.toml` (`python -m spec.tables`); tests compare it with the TLA+ modules and with the broker.",
        "",
        "| action | method | whose | arguments | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {a.name} | `{a.method}` | {a.actor} | {', '.join(a.arguments)} | {a.meaning} |" for a in ACTIONS]
    return "\n".join(lines) + "\n"
