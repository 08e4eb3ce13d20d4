"""Finds the unit tests and the runs of the simulation that reach a change.

A run that does not reach the changed place is identical to the run of the unchanged code: it cannot detect the change, and is not
repeated. So the unchanged code runs once with a mark in each block, and a cache stores which tests and runs reached it. For a
test with random input this one session decides whether it runs.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from linearizability.mutants.code.changes import ROOT, Change, module_path

FOLDER = ROOT / ".cache" / "reached"
MARK = "__reached__"
BODIES = ("body", "orelse", "finalbody")
CACHED = frozenset({"cache", "lru_cache"})
ALWAYS = "always"
"""In place of a test's name: the block is reached only once for all tests, for example in a function with a cached result."""


@dataclass(frozen=True)
class Reached:
    """CPU seconds of each test or run, and for each block the tests or runs that reach it."""

    seconds: dict[str, float]
    places: dict[str, list[str]]

    def of(self, change: Change) -> list[str]:
        """The tests or runs that reach the change, the quickest first; then all others if the block is marked ALWAYS."""
        found = self.places.get(place_of(change), [])
        ordered = sorted({*found} - {ALWAYS}, key=lambda name: self.seconds[name])
        return ordered + sorted({*self.seconds} - {*ordered}) if ALWAYS in found else ordered


# ---- blocks


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of all functions of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for inner in ast.walk(node):
                for name in BODIES:
                    block = getattr(inner, name, None)
                    if isinstance(block, list) and block and not isinstance(inner, ast.ClassDef):
                        yield block


def _place(module: str, block: list[ast.stmt]) -> str:
    return f"{module}:{block[0].lineno}"


@cache
def _spans(module: str) -> list[tuple[int, int, str]]:
    tree = ast.parse(module_path(module).read_text())
    return sorted(
        (block[0].lineno, max(each.end_lineno or 0 for each in block), _place(module, block)) for block in _blocks(tree)
    )


def place_of(change: Change) -> str:
    """The innermost block around a change."""
    around = [each for each in _spans(change.module) if each[0] <= change.line <= each[1]]
    return max(around, key=lambda each: (each[0], -each[1]))[2]


def marked(module: str) -> ast.Module:
    """The module's tree with a mark at the head of each block."""
    tree = ast.parse(module_path(module).read_text())
    seen: set[int] = set()
    for block in [*_blocks(tree)]:
        if id(block) in seen:
            continue
        seen.add(id(block))
        mark = ast.parse(f"{MARK}({_place(module, block)!r})").body[0]
        for each in ast.walk(mark):
            ast.copy_location(each, block[0])
        is_text = isinstance(block[0], ast.Expr) and isinstance(block[0].value, ast.Constant)
        block.insert(1 if is_text else 0, mark)
    return tree


def _kept(modules: Iterable[str]) -> Iterator[str]:
    """The blocks of functions whose results are cached."""
    for module in modules:
        for node in ast.walk(ast.parse(module_path(module).read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                {name.id for name in ast.walk(each) if isinstance(name, ast.Name)} & CACHED
                for each in node.decorator_list
            ):
                yield from (_place(module, block) for block in _blocks(ast.Module([node], [])))


# ---- recording


class Recorder:
    """Records the blocks that each test or run reaches; also a plugin of pytest."""

    def __init__(self) -> None:
        self.now: set[str] = set()
        self.reached = Reached({}, {})
        self._began = 0.0

    def begin(self) -> None:
        self.now.clear()
        self._began = time.process_time()

    def end(self, name: str) -> None:
        self.reached.seconds[name] = round(time.process_time() - self._began, 3)
        for place in self.now:
            self.reached.places.setdefault(place, []).append(name)

    def pytest_collection_finish(self) -> None:
        self.before()

    def before(self) -> None:
        """Mark the blocks reached so far as ALWAYS: later tests or runs need not reach them again."""
        for place in self.now:
            self.reached.places.setdefault(place, []).append(ALWAYS)

    def pytest_runtest_logstart(self) -> None:
        self.begin()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.end(nodeid)

    def store(self, name: str, digest: str, modules: Iterable[str]) -> None:
        for place in _kept(modules):
            self.reached.places.setdefault(place, []).append(ALWAYS)
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{name}.json").write_text(json.dumps({"digest": digest, **vars(self.reached)}))


def load(name: str, digest: str) -> Reached | None:
    """The record of this name for the code with this digest, or None."""
    path = FOLDER / f"{name}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    return Reached(kept["seconds"], kept["places"]) if kept.get("digest") == digest else None


def digest_of(*folders: str) -> str:
    """A digest of all Python files in these folders."""
    total = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]
