"""Carries stored results over a change of names alone: `python -m tests.repository.carry REVISION`.

A result is stored with a fingerprint of the text that it was measured with. After a renaming the text reads differently and
means the same. The command compares the tree with a revision. Each changed Python file must be the same but for names,
docstrings, messages and the types of local variables, each changed TLA+ module the same but for names and comments; within a
function or a module a name stands for one former name only. Where Python files were split, each definition must be as it was,
in one file or another. Fingerprints that were up to date at the revision are then replaced by today's; nothing else of a result
changes. It prints the changed strings for a reader: a string that decides something is a change of behaviour. Judge a few
results again as a sample before the commit.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec.mutants import Mutant
    from spec.mutation import Row

ROOT = Path(__file__).parents[2]
NEW_FILE = "/dev/null"
COMPARED = {".py", ".tla", ".cfg"}
STORES = {
    "releases": "conformance/requirements/releases.json",
    "lies": "linearizability/bench/suite.json",
    "trials": "linearizability/bench/fuzz.json",
    "changes": "linearizability/mutants/code/results.json",
    "models": "spec/results.json",
    "promises": "spec/promises.json",
    "mutants": "spec/mutants.json",
}
Stamp = tuple[str, ...]
"""The stored fingerprint of the text that a result was measured with."""
Stamps = dict[str, list[Stamp]]
"""Store -> stamps, in an order that names do not decide."""


class Different(Exception):
    """A file is not the same but for names; the text says where."""


# ---- fingerprints, in whichever tree is the current directory


def stamps(former_names: dict[str, str]) -> Stamps:
    """The stamps of everything that can have a stored result; of the specification's mutants, of the stored ones in their order.

    `former_names` maps present to former paths of renamed files: both trees list modules in the order of the former names.
    """
    from conformance.releases import fingerprint as of_requirement
    from conformance.requirement import catalogue
    from linearizability.bench import fuzz, suite
    from linearizability.mutants.code.changes import PACKAGES, changes_of
    from linearizability.mutants.registry import MUTANTS
    from linearizability.mutants.wire.lies import LIES
    from spec import mutation, promises
    from spec.catalogue import MODELS, all_cases

    modules = [path for package in PACKAGES for path in Path("reference", package).rglob("*.py")]
    modules.sort(key=lambda path: former_names.get(str(path), str(path)))
    changes = [change for path in modules for change in changes_of(".".join(path.with_suffix("").parts))[1]]
    rows, mutants = mutation.load(), mutation.all_mutants()
    return {
        "releases": [(of_requirement(entry),) for entry in catalogue().values() if entry.test],
        "lies": [(suite.fingerprint(lie),) for lie in LIES.values()],
        "trials": [(fuzz.fingerprint(name),) for name in MUTANTS],
        "changes": [(each.name, each.fingerprint, each.was[:200], each.becomes[:200]) for each in changes],
        "models": [(case.digest(),) for case in all_cases().values()],
        "promises": [(promises.digest(model),) for model in MODELS],
        "mutants": [_of_mutant(mutants[name], row) for name, row in rows.items() if name in mutants],
    }


def _of_mutant(mutant: Mutant, row: Row) -> Stamp:
    from spec.mutation import fingerprint

    models = row.models + row.out_of_time or ((row.model,) if row.model else ())
    return mutant.name, mutant.change, fingerprint(mutant, models, row.by if row.outcome == "killed" else "")


def stamps_in(tree: Path, former_names: dict[str, str]) -> Stamps:
    done = subprocess.run(
        [sys.executable, __file__, "--stamps", json.dumps(former_names)],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return {name: [tuple(stamp) for stamp in found] for name, found in json.loads(done.stdout).items()}


# ---- the same but for names


def changed_files(revision: str) -> Iterator[tuple[str, str]]:
    """Former and present name of each file that differs and that code is made of."""
    command = ["git", "diff", "--name-status", "-M40%", revision, "--"]
    for line in subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        status, *names = line.split("\t")
        if Path(names[-1]).suffix in COMPARED and Path(__file__).parent not in (ROOT / names[-1]).parents:
            yield (NEW_FILE if status == "A" else names[0]), names[-1]


def python_scopes(text: str) -> Iterator[list[str | tuple[str, str]]]:
    """Each function, and the rest of the module, as a list of its parts; a name or a string is ('name' or 'text', its value).

    Imports are left out, and the types of a function's variables, which are not evaluated."""
    rest: list[str | tuple[str, str]] = []
    scopes = [rest]

    def walk(node: object, scope: list[str | tuple[str, str]]) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and scope is rest:
            scopes.append(scope := [])
        if isinstance(node, ast.AnnAssign) and node.value and scope is not rest:
            node = ast.Assign(targets=[node.target], value=node.value, type_comment=None)
        if isinstance(node, list):
            scope.append("[")
            for each in node:
                documents = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
                declares = isinstance(each, ast.AnnAssign) and not each.value and scope is not rest
                if not documents and not declares and not isinstance(each, ast.Import | ast.ImportFrom):
                    walk(each, scope)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            scope.append(("text", node.value))
        elif isinstance(node, ast.AST):
            scope.append(type(node).__name__)
            for _, value in ast.iter_fields(node):
                walk(value, scope)
        else:
            scope.append(("name", node) if isinstance(node, str) else repr(node))

    walk(ast.parse(text), rest)
    return iter(scopes)


def tla_scopes(text: str) -> Iterator[list[str | tuple[str, str]]]:
    """A module is one scope; comments and white space are left out, but for a line's indentation, which joins its lists."""
    bare = re.sub(r"\\\*.*", "", re.sub(r"\(\*.*?\*\)", "", text, flags=re.S))
    words = re.findall(r"^[ ]+(?=\S)|\w+|[^\w\s]", bare, flags=re.M)
    yield [("name", word) if re.fullmatch(r"\w*[A-Za-z_]\w*", word) else word for word in words]


def compare(path: str, before: str, after: str) -> list[str]:
    """The strings that differ. Errors: Different."""
    scopes_of: Callable[[str], Iterator[list[str | tuple[str, str]]]]
    scopes_of = python_scopes if path.endswith(".py") else tla_scopes
    strings: list[str] = []
    former_scopes, present_scopes = list(scopes_of(before)), list(scopes_of(after))
    if len(former_scopes) != len(present_scopes):
        raise Different(f"{path}: other functions")
    for was, now in zip(former_scopes, present_scopes, strict=True):
        names: dict[str, str] = {}
        if len(was) != len(now):
            raise Different(f"{path}: another structure near {[each for each in now if isinstance(each, tuple)][:3]}")
        for old, new in zip(was, now, strict=True):
            if isinstance(old, str) or isinstance(new, str):
                if old != new:
                    raise Different(f"{path}: {old} is {new}")
            elif old[0] == "text" == new[0]:
                strings += [f"{path}: {old[1]!r} -> {new[1]!r}"] if old != new else []
            elif names.setdefault(new[1], old[1]) != old[1]:
                raise Different(f"{path}: {new[1]} stands for {names[new[1]]} and {old[1]}")
    return strings


def definitions(text: str) -> list[str]:
    """What a Python module defines, each as a text without its place. Errors: Different, where it is none."""
    try:
        found = ast.parse(text).body
    except SyntaxError as error:
        raise Different("only Python files are split") from error
    return [
        ast.dump(each)
        for each in found
        if not isinstance(each, ast.Import | ast.ImportFrom)
        and not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]


# ---- carrying over


QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def carried(line: str, changes: dict[str, dict[str, str]]) -> str:
    """A line of a store with today's stamps: a stamp is replaced as a whole, where its first part is in the line."""
    pairs: dict[str, str] = {}
    for each in QUOTED.findall(line):
        pairs |= changes.get(each, {})
    return QUOTED.sub(lambda quoted: pairs.get(quoted[0], quoted[0]), line)


def carry(former: Stamps, present: Stamps) -> int:
    """Write today's stamps into the stores; the number that changed."""
    changed = 0
    for name, path in STORES.items():
        if len(former[name]) != len(present[name]):
            raise Different(f"{name}: {len(former[name])} stamps are {len(present[name])}")
        changes = {
            json.dumps(was[0]): {json.dumps(old): json.dumps(new) for old, new in zip(was, now, strict=True)}
            for was, now in zip(former[name], present[name], strict=True)
            if was != now
        }
        text = (ROOT / path).read_text()
        found = [carried(line, changes) for line in text.split("\n")]
        count = sum(was in text for was in changes)
        print(f"{name}: {count} of {len(changes)} changed stamps are stored")
        (ROOT / path).write_text("\n".join(found))
        changed += count
    return changed


def main(revision: str) -> None:
    former_names: dict[str, str] = {}
    moved: Counter[str] = Counter()
    differences: list[Different] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, revision], cwd=ROOT, check=True)
        try:
            for was, now in changed_files(revision):
                before, after = "" if was == NEW_FILE else (tree / was).read_text(), (ROOT / now).read_text()
                try:
                    for string in compare(now, before, after):
                        print(string)
                    former_names[now] = was
                except Different as difference:
                    differences.append(difference)
                    moved.update(definitions(after))
                    moved.subtract(definitions(before))
            if any(moved.values()):
                raise differences[0]
            former = stamps_in(tree, {})
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    carry(former, stamps_in(ROOT, former_names))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--stamps", names]:
            sys.path.insert(0, str(Path.cwd()))  # an environment may put its own tree before PYTHONPATH
            sys.stdout.write(json.dumps(stamps(json.loads(names))))
        case [revision]:
            main(revision)
        case _:
            sys.exit("usage: python -m tests.repository.carry REVISION")
