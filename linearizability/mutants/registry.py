"""The registry of mutants, and how to plant a mutant and remove it again."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, TypedDict, Unpack

MUTATED_PACKAGE = "reference"


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    name: str
    bug: str
    """The bug, in one sentence about the broker's behaviour."""
    function: str
    """The function that is replaced: `module:name` or `module:Class.name`."""
    replacement: Callable[..., Any]
    """The function that replaces it: its first argument is the original, the others are the original's arguments."""
    caught_by: tuple[str, ...]
    """Requirements of the conformance suite that must fail, or areas in which one must."""
    fuzz: bool
    """Whether `tidegauge fuzz` must find it."""
    everywhere: bool
    """Whether modules that imported the function by name get the replacement, too."""
    nodes: int = 1
    """The number of nodes that a run needs for the bug to show."""
    breaks: tuple[str, ...] = ()
    """Promises of which one must break; empty: any promise."""
    workload: str = "records"
    """The clients' workload in the runs that must find it (`tidegauge fuzz --workload`)."""
    machine: str = ""
    """The state machine of the tests that must find it: `module:class`; empty if clients or the suite find it."""
    in_history: bool = False
    """Whether it loses or changes committed records: then the checker must also find it from clients' histories alone."""
    only_in_history: bool = False
    """Whether only histories can show it: checks of the nodes' state see another broken promise earlier, which ends the run."""
    also: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    """Further functions that are replaced, because they would prevent the effect of the bug."""
    coordination: str = "kraft"
    """The coordination of the nodes in the runs that must find it (`tidegauge fuzz --coordination`)."""

    def is_found_by(self, rule: str) -> bool:
        """Whether a broken promise (or several, separated by commas) is one that this bug must break."""
        return not self.breaks or any(each in self.breaks for each in rule.split(", "))


class Found(TypedDict, total=False):
    """The fields of `Mutant` that have a default: they describe how the mutant is found."""

    nodes: int
    breaks: tuple[str, ...]
    workload: str
    machine: str
    in_history: bool
    only_in_history: bool
    also: Mapping[str, Callable[..., Any]]
    coordination: str


MUTANTS: dict[str, Mutant] = {}
"""All mutants by name."""


def mutant(
    function: str,
    bug: str,
    *,
    caught_by: tuple[str, ...] = (),
    fuzz: bool = False,
    everywhere: bool = True,
    **found: Unpack[Found],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the replacement of a function of the reference; see `Mutant`.

    The mutant is named as the decorated function, with hyphens: the bug of `kip_279` is `kip-279`.
    """
    if found.get("only_in_history"):
        found["in_history"] = True

    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        name = replacement.__name__.replace("_", "-")
        assert name not in MUTANTS, f"two mutants are named {name}"
        assert caught_by or fuzz or "machine" in found, f"nothing is said to catch the mutant {name}"
        MUTANTS[name] = Mutant(name, bug, function, replacement, caught_by, fuzz, everywhere, **found)
        return replacement

    return register


class UnknownMutant(KeyError):
    """No mutant has this name."""

    def __str__(self) -> str:
        return f"{self.args[0]!r} is no mutant; there are {', '.join(MUTANTS)}"


class BrokenMutant(BaseException):
    """The mutant no longer fits the reference: an error of this project, which never counts as a bug that was found.

    It is not an Exception, so that no handler treats it as a failure of the node.
    """


@contextmanager
def planted(name: str) -> Iterator[Mutant]:
    """Run with the bug in every node of this process. Errors: UnknownMutant, BrokenMutant."""
    found = MUTANTS.get(name)
    if found is None:
        raise UnknownMutant(name)
    undo: list[Callable[[], None]] = []
    try:
        undo += _plant(found)
        for function, replacement in found.also.items():
            undo += _plant(replace(found, function=function, replacement=replacement))
        yield found
    finally:
        for restore in reversed(undo):
            restore()


def _plant(found: Mutant) -> list[Callable[[], None]]:
    importlib.import_module(
        "reference.node.zookeeper.node"
    )  # all imports by name happen before the function is replaced
    module_name, _, path = found.function.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    if attribute not in vars(owner):
        raise BrokenMutant(f"{found.name}: there is no function {found.function}")
    original = owner.__dict__[attribute]
    function = _function_of(original)

    _require_fit(found, function)
    ours = {__file__, found.replacement.__code__.co_filename}

    @functools.wraps(function)
    def replaced(*arguments: Any, **named: Any) -> Any:
        try:
            return found.replacement(function, *arguments, **named)
        except (TypeError, AttributeError, NameError) as error:
            if traceback.extract_tb(error.__traceback__)[-1].filename in ours:
                raise BrokenMutant(f"{found.name}: {error}") from error
            raise

    new = property(replaced) if isinstance(original, property) else replaced
    undo: list[Callable[[], None]] = [_set(owner, attribute, original, new)]
    if isinstance(owner, ModuleType) and found.everywhere:
        for module in [*sys.modules.values()]:
            if module is owner or getattr(module, "__name__", "").partition(".")[0] != MUTATED_PACKAGE:
                continue
            for key, value in [*vars(module).items()]:
                if value is original:
                    undo.append(_set(module, key, original, replaced))
                elif isinstance(value, dict):
                    undo += [_put(value, each, original, replaced) for each in [*value] if value[each] is original]
    return undo


def _function_of(original: Any) -> Callable[..., Any]:
    if isinstance(original, property):
        assert original.fget is not None
        return original.fget
    return original.__func__ if isinstance(original, staticmethod | classmethod) else original


def _require_fit(found: Mutant, function: Callable[..., Any]) -> None:
    """Check that the replacement accepts the original's arguments. Errors: BrokenMutant if not."""
    parameters = inspect.signature(function).parameters.values()
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    named = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
    try:
        inspect.signature(found.replacement).bind(function, *positional, **named)
    except TypeError as error:
        raise BrokenMutant(f"{found.name} does not fit {found.function}: {error}") from error


def _set(owner: Any, name: str, original: Any, replaced: Any) -> Callable[[], None]:
    setattr(owner, name, replaced)
    return lambda: setattr(owner, name, original)


def _put(table: dict[Any, Any], key: Any, original: Any, replaced: Any) -> Callable[[], None]:
    table[key] = replaced

    def restore() -> None:
        table[key] = original

    return restore


def _load() -> None:
    """Import all modules of bugs, which fills the registry."""
    from linearizability.mutants import (  # noqa: F401
        access_bugs,
        authentication_bugs,
        cluster_bugs,
        compaction_bugs,
        group_bugs,
        protocol_bugs,
        quorum_bugs,
        quota_bugs,
        replication_bugs,
        storage_bugs,
        transaction_bugs,
        zookeeper_bugs,
    )


_load()
