"""Finds the places of a module that can be changed.

| kind | change |
| --- | --- |
| negate | the condition of an `if`, a `while` or a comprehension is negated |
| operand | one operand of an `and` or an `or` is left out |
| bound | `<` and `<=`, `>` and `>=`, `min` and `max` are exchanged |
| step | `+ 1` or `- 1` is left out |
| call | a call whose result is not used is left out |
| reset | an assignment to an attribute or an entry is left out |

Not changed: log lines, trace events, assertions, first values of a new object, texts for people.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PACKAGES = ("replication", "storage", "controller", "coordinator")
"""The packages of the reference that are changed."""

MOVED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
EXCHANGED = {"min": "max", "max": "min"}
TEXTS = frozenset({"__repr__", "__str__", "__format__"})
UNSEEN_CALLS = frozenset({"debug", "info", "warning", "error", "exception", "log", "trace_step"})
"""Calls that write log lines, and the trace that the specification checks: other tests cover these."""
NO_RULES = frozenset({f"reference.storage.{disk}" for disk in ("disk", "posix_disk", "simulated_disk")})
"""Modules that are not changed: the simulation replaces the disk."""


@dataclass(frozen=True)
class Change:
    """One change of one module; `apply` makes it in the tree in which it was found."""

    module: str
    """For example `reference.storage.log`."""
    function: str
    """For example `Log.append`."""
    kind: str
    number: int
    """Counts the changes of this kind within the function, from 1."""
    line: int
    was: str
    becomes: str
    apply: Callable[[], None] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The change's address, for example `storage.log:Log.append:bound2`."""
        return f"{self.module.removeprefix('reference.')}:{self.function}:{self.kind}{self.number}"

    @property
    def package(self) -> str:
        return self.module.split(".")[1]

    @property
    def fingerprint(self) -> str:
        """A digest of name, former and new text: a stored row with another one is stale."""
        return hashlib.sha256(f"{self.name} {self.was} {self.becomes}".encode()).hexdigest()[:8]


def module_path(module: str) -> Path:
    """The file of a module of the reference."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def changes_of(module: str) -> tuple[ast.Module, list[Change]]:
    """A module's tree, and all changes of it; only one of them may be applied to this tree."""
    tree = ast.parse(module_path(module).read_text())
    return tree, [change for name, function in _functions(tree) for change in _numbered(module, name, function)]


@cache
def all_changes() -> dict[str, Change]:
    """All changes by name, in a fixed random order: any first part is a fair sample."""
    modules = [
        "reference." + ".".join(path.relative_to(ROOT / "reference").with_suffix("").parts)
        for package in PACKAGES
        for path in sorted((ROOT / "reference" / package).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    found = {change.name: change for module in modules if module not in NO_RULES for change in changes_of(module)[1]}
    return {name: found[name] for name in sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest())}


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef) and child.name not in TEXTS:
            yield f"{prefix}{child.name}", child


def _numbered(module: str, function: str, body: ast.FunctionDef) -> Iterator[Change]:
    numbers: dict[str, int] = {}
    for statement in body.body:
        for kind, place, becomes, apply in _sites(statement):
            if kind == "reset" and body.name == "__init__":
                continue
            numbers[kind] = numbers.get(kind, 0) + 1
            was, now = ast.unparse(place), ast.unparse(becomes)
            yield Change(module, function, kind, numbers[kind], place.lineno, was, now, apply)


Site = tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt, Callable[[], None]]
"""(kind, former node, new node, function that makes the change)."""


def _sites(node: ast.AST) -> Iterator[Site]:
    if isinstance(node, ast.Assert | ast.Raise) or _is_unseen(node):
        return
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, ast.AST):
                    yield from _changes(each, partial(_put, value, index))
        elif isinstance(value, ast.AST):
            yield from _changes(value, partial(setattr, node, name), name == "test")
    if isinstance(node, ast.comprehension):
        for index, test in enumerate(node.ifs):
            yield _site("negate", test, _negated(test), partial(_put, node.ifs, index))
    elif isinstance(node, ast.Expr | ast.Assign | ast.AugAssign):
        yield from _left_out(node)


def _put(items: list[Any], index: int, new: ast.AST) -> None:
    items[index] = new


def _changes(node: ast.AST, put: Callable[[ast.AST], None], is_test: bool = False) -> Iterator[Site]:
    """The changes at a node, which `put` replaces by another, and the changes inside it."""
    if is_test and isinstance(node, ast.expr):
        yield _site("negate", node, _negated(node), put)
    match node:
        case ast.BoolOp(op=op, values=values):
            for index in range(len(values)):
                rest = [*values[:index], *values[index + 1 :]]
                yield _site("operand", node, rest[0] if len(rest) == 1 else ast.BoolOp(op, rest), put)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for index, op in enumerate(ops):
                if moved := MOVED.get(type(op)):
                    moved_ops = [*ops[:index], moved(), *ops[index + 1 :]]
                    yield _site("bound", node, ast.Compare(left, moved_ops, comparators), put)
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=ast.Constant(value=1)):
            yield _site("step", node, left, put)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in EXCHANGED:
            yield _site("bound", node, ast.Call(ast.Name(EXCHANGED[name], ast.Load()), arguments, keywords), put)
        case _:
            pass
    yield from _sites(node)


def _left_out(node: ast.Expr | ast.Assign | ast.AugAssign) -> Iterator[Site]:
    """The change that replaces a statement by `pass`; none for an assignment to a local name, without which the code fails."""
    if isinstance(node, ast.Expr):
        kind = "call" if isinstance(node.value, ast.Call) else ""
    else:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        kind = "reset" if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets) else ""
    if kind:
        nothing = ast.Pass()

        def apply() -> None:
            node.__class__ = ast.Pass  # pyright: ignore[reportAttributeAccessIssue]: a statement cannot be put elsewhere

        yield kind, _copy(node), nothing, apply


def _copy(node: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.parse(ast.unparse(node)).body[0], node)


def _site(kind: str, node: ast.expr, becomes: ast.expr, put: Callable[[ast.AST], None]) -> Site:
    new = ast.fix_missing_locations(ast.copy_location(becomes, node))
    return kind, node, new, lambda: put(new)


def _negated(test: ast.expr) -> ast.expr:
    return (
        test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else ast.UnaryOp(ast.Not(), test)
    )


def _is_unseen(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name in UNSEEN_CALLS:
            return True
        case _:
            return False
