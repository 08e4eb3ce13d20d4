"""Finds the broker's pure rules with a contract, and checks each with CrossHair.

A rule is a function of `reference/` (or a bounded form of one, in `bounded.py`) whose docstring has `pre:` and `post:` lines.
The sources are searched for them; there is no list. A rule over numbers, booleans and strings must be *confirmed*: CrossHair
explores all of its paths. A rule over lists or functions has too many paths: it is *searched* for a counterexample, and its
bounded form is confirmed instead.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import time
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from spec.models import SPEC

ROOT = SPEC.parent
STORE = SPEC / "pure_rules.json"
CONDITION = re.compile(r"^\s*(pre|post): (.+)$", re.M)
SCALARS = (int, bool, str)
SECONDS_A_CONDITION = 30
SECONDS_A_SEARCH = 5


class Knowledge(StrEnum):
    """The result of checking a rule, from the best to the worst; that of its worst condition."""

    CONFIRMED = "confirmed"
    """Every condition holds on all paths."""
    SEARCHED = "searched"
    """No counterexample was found in time."""
    REFUTED = "refuted"
    """A counterexample was found, or the contract cannot be read."""


@dataclass(frozen=True)
class PureRule:
    """One rule and its contract."""

    module: str
    name: str
    summary: str
    pre: tuple[str, ...]
    post: tuple[str, ...]
    """Empty if the contract is prose: then a bounded form must state it as expressions."""
    is_scalar: bool
    """Whether all parameters are numbers, booleans, strings or members of an enumeration: such a rule must be confirmed."""
    lines: tuple[int, int]
    """Its first and last line in the file."""
    calls: tuple[str, ...] = ()
    """For a bounded form, the rules of the reference that it calls."""

    @property
    def path(self) -> Path:
        return ROOT / (self.module.replace(".", "/") + ".py")

    @property
    def title(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def function(self) -> Callable[..., Any]:
        return getattr(importlib.import_module(self.module), self.name)

    def evaluate(self, arguments: dict[str, Any]) -> bool | None:
        """Whether the contract holds for these arguments; None if they violate a precondition."""
        scope = dict(vars(importlib.import_module(self.module))) | arguments
        if not all(eval(condition, scope) for condition in self.pre):
            return None
        result = self.function(**arguments)
        scope |= {"_": result, "__return__": result}
        return all(eval(condition, scope) for condition in self.post)


@dataclass(frozen=True)
class Finding:
    """CrossHair's result for one rule."""

    rule: str
    knowledge: str
    reason: str = ""


# ---- finding


def find_rules(folders: Iterable[str] = ("reference", "spec")) -> list[PureRule]:
    """All rules with a contract, in the order of their files."""
    found: list[PureRule] = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if re.search(r"^\s+post: ", text, re.M):
                found += rules_of(text, ".".join(path.relative_to(ROOT).with_suffix("").parts))
    return found


def rules_of(text: str, module: str) -> list[PureRule]:
    """The rules of one module."""
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("reference.")
        for alias in node.names
    }
    found = [_rule(node, module, imported) for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [rule for rule in found if rule]


def _rule(node: ast.FunctionDef, module: str, imported: dict[str, str]) -> PureRule | None:
    docstring = ast.get_docstring(node) or ""
    conditions = CONDITION.findall(docstring)
    if not any(kind == "post" for kind, _ in conditions):
        return None
    used = {
        inner.func.id for inner in ast.walk(node) if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
    }
    return PureRule(
        module=module,
        name=node.name,
        summary=docstring.splitlines()[0],
        pre=tuple(text for kind, text in conditions if kind == "pre"),
        post=tuple(text for kind, text in conditions if kind == "post" and _is_expression(text)),
        is_scalar=_is_scalar(module, node.name),
        lines=(node.lineno, node.end_lineno or node.lineno),
        calls=tuple(sorted(imported[name] for name in used & imported.keys())) if module.startswith("spec.") else (),
    )


def _is_expression(text: str) -> bool:
    try:
        compile(text, "contract", "eval")
    except SyntaxError:
        return False
    return True


def _is_scalar(module: str, name: str) -> bool:
    function = getattr(importlib.import_module(module), name)
    hints = typing.get_type_hints(function)
    kinds = [hints.get(parameter) for parameter in inspect.signature(function).parameters]
    return all(isinstance(kind, type) and (kind in SCALARS or issubclass(kind, Enum)) for kind in kinds)


# ---- confirming


def confirm(rules: Sequence[PureRule], seconds_a_condition: float = SECONDS_A_CONDITION) -> list[Finding]:
    """CrossHair's finding for each rule. A rule over lists or functions is never confirmed, so it gets little time."""
    plain = [rule for rule in rules if rule.is_scalar]
    general = [rule for rule in rules if not rule.is_scalar]
    said = _crosshair(plain, seconds_a_condition) + _crosshair(general, min(seconds_a_condition, SECONDS_A_SEARCH))
    return [judge(rule, said) for rule in rules]


def _crosshair(rules: Sequence[PureRule], seconds_a_condition: float) -> str:
    """The output of one run of CrossHair; "" if it did not end in time, which confirms nothing."""
    titles = [rule.title for rule in rules if rule.post]
    if not titles:
        return ""
    command = [sys.executable, "-m", "crosshair", "check", "--report_all", "--analysis_kind=PEP316"]
    command += [f"--per_condition_timeout={seconds_a_condition}", *titles]
    budget_s = 60 + seconds_a_condition * sum(len(rule.post) for rule in rules)
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=budget_s, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout + done.stderr


MESSAGE = re.compile(r"^(.+?\.py):(\d+): (\w+): (.*)$", re.M)


def judge(rule: PureRule, output: str) -> Finding:
    """A rule's finding by CrossHair's output. A condition that the output does not mention is not confirmed."""
    if not rule.post:
        return Finding(rule.title, Knowledge.SEARCHED, "its contract is prose")
    first, last = rule.lines
    messages = [
        (kind, text)
        for file, line, kind, text in MESSAGE.findall(output)
        if Path(file) == rule.path and first <= int(line) <= last
    ]
    errors = [text for kind, text in messages if kind == "error"]
    if errors:
        return Finding(rule.title, Knowledge.REFUTED, errors[0])
    confirmed = sum("Confirmed over all paths" in text for _, text in messages)
    if confirmed == len(rule.post):
        return Finding(rule.title, Knowledge.CONFIRMED)
    missing = len(rule.post) - confirmed
    return Finding(rule.title, Knowledge.SEARCHED, f"{missing} of {len(rule.post)} conditions not confirmed")


# ---- the page


def page(findings: dict[str, Finding]) -> str:
    """PURE_RULES.md."""
    rules = find_rules()
    bounded = {called: rule for rule in rules for called in rule.calls}
    lines = [
        "# The rules that were confirmed",
        "",
        "The broker's decisions, as pure functions with contracts; the broker calls these very functions. *Confirmed*: CrossHair",
        "walked all paths and every condition holds. *Searched*: no counterexample was found, by Hypothesis at random and with",
        "CrossHair as its backend: over lists of any length there are too many paths, so a bounded form is confirmed, too.",
        "Generated by `tidegauge spec rules --record`; a test confirms them again, and finds new ones by their contracts.",
        "",
        "| rule | what it decides | takes | conditions | found | bounded form |",
        "| --- | --- | --- | ---: | --- | --- |",
    ]
    for rule in rules:
        finding = findings.get(rule.title)
        other = bounded.get(rule.title)
        takes = "plain values" if rule.is_scalar else "lists or functions"
        about = f"`{rule.title}` | {rule.summary} | {takes} | {len(rule.post) or 'in words'}"
        lines.append(
            f"| {about} | {finding.knowledge if finding else 'not run'} | {f'`{other.name}`' if other else ''} |"
        )
    return "\n".join(lines) + "\n"


def load() -> dict[str, Finding]:
    """The stored findings by the rules' names."""
    if not STORE.exists():
        return {}
    return {row["rule"]: Finding(**row) for row in json.loads(STORE.read_text())}


def record(findings: Iterable[Finding]) -> None:
    """Store the findings, and write PURE_RULES.md."""
    rows = [json.dumps(asdict(finding)) for finding in findings]
    STORE.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    (SPEC / "PURE_RULES.md").write_text(page(load()))


def confirm_all(seconds_a_condition: float = SECONDS_A_CONDITION) -> tuple[list[PureRule], list[Finding], float]:
    """All rules, their findings, and the time in seconds."""
    start = time.monotonic()
    rules = find_rules()
    return rules, confirm(rules, seconds_a_condition), time.monotonic() - start
