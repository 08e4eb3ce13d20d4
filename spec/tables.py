"""Writes the generated files: ACTIONS.md, TRACEABILITY.md, PROMISES.md, MUTANTS.md, the tables of MODELS.md, and the
configurations of switches.

With `--check` it only reports the files that are not current.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from spec.actions import actions_page
from spec.catalogue import all_cases
from spec.models import SPEC, Case
from spec.proof_pages import mutants_page, promises_page
from spec.results import Result, load
from spec.traceability import traceability_page

PAGE = SPEC / "MODELS.md"
BEGIN, END = "<!-- generated: {} -->", "<!-- end of {} -->"


def model_table(results: dict[str, Result]) -> str:
    """The table of clean models, with the results of their last runs."""
    rows = ["| model | constants | expected | found | distinct states | depth | seconds | CPU seconds |"]
    rows.append("| --- | --- | --- | --- | ---: | ---: | ---: | ---: |")
    for name, case in all_cases().items():
        if case.switch or case.model.behaviours:
            continue
        result = results.get(name)
        rows.append(f"| {name} | {_constants(case.model.text)} | {case.expected} | {_found(result)} |")
    return "\n".join(rows)


def simulation_table(results: dict[str, Result]) -> str:
    """The table of models that are too large to be searched: the numbers of random behaviours and states."""
    rows = ["| simulation | constants | expected | found | behaviours | of states | states | seconds | CPU seconds |"]
    rows.append("| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name, case in all_cases().items():
        if not case.model.behaviours:
            continue
        found = results.get(name)
        drawn = f"{case.model.behaviours:,} | {case.model.length}"
        cells = f"{found.generated:,} | {found.seconds:.1f} | {found.cpu_seconds:.1f}" if found else " | | "
        verdict = found.actual if found else "not run"
        rows.append(f"| {name} | {_constants(case.model.text)} | {case.expected} | {verdict} | {drawn} | {cells} |")
    return "\n".join(rows)


def switch_table(results: dict[str, Result]) -> str:
    """The table of switches: the promise that each breaks, and the length of its shortest trace."""
    rows = [
        "| switch | source | model | violates | found | distinct states | states in the trace | seconds | CPU seconds "
        "| breaks first |"
    ]
    rows.append("| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- |")
    for name, case in all_cases().items():
        if case.switch:
            about = f"{case.switch.source} | {case.model.name} | {case.switch.violates}"
            rows.append(f"| {name} | {about} | {_found(results.get(name))} | {_first(results.get(name))} |")
    return "\n".join(rows)


def _first(result: Result | None) -> str:
    """The promise that breaks first with the switch on, and in how many states; "the same" for the switch's own promise."""
    if not result:
        return "not run"
    if not result.first_violated:
        return "not asked"
    is_same = (result.first_violated, result.first_depth) == (result.violated, result.depth)
    return "the same" if is_same else f"{result.first_violated}, in {result.first_depth}"


def _found(result: Result | None) -> str:
    if not result:
        return "not run | | | | "
    return f"{result.actual} | {result.distinct:,} | {result.depth} | {result.seconds:.1f} | {result.cpu_seconds:.1f}"


UNSHOWN = {"None", "Faults", "RecordSteps", "Bugs", "Brokers", "Step"}


def _constants(text: str) -> str:
    """The constants that distinguish a model, in one line."""
    section = re.search(r"^CONSTANTS?$(.*?)^[A-Z]", text, re.M | re.S)
    found = re.findall(r"^\s+(\w+) = (.+)$", section[1], re.M) if section else []
    rest = [
        f"{name} {value}"
        for name, value in found
        if name != value and name not in UNSHOWN and value not in ("0", "FALSE")
    ]
    members = re.search(r"\bBrokers = \{([^}]*)\}", text)
    first = [f"{len(members[1].split(','))} brokers"] if members else []
    return ", ".join(first + rest)


def pages(results: dict[str, Result] | None = None) -> dict[Path, str]:
    """Path -> current text of each generated file."""
    results = load() if results is None else results
    text = PAGE.read_text()
    tables = {
        "models": model_table(results),
        "simulations": simulation_table(results),
        "switches": switch_table(results),
    }
    for name, table in tables.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    pages = {PAGE: text, SPEC / "ACTIONS.md": actions_page(), SPEC / "TRACEABILITY.md": traceability_page()}
    pages |= {SPEC / "PROMISES.md": promises_page(), SPEC / "MUTANTS.md": mutants_page()}
    return pages | {case.path: switch_file(case) for case in all_cases().values() if has_file(case)}


def has_file(case: Case) -> bool:
    """Whether a case has a generated configuration: a switch among the `KnownBugs` of the modules has one."""
    return case.switch is not None and not case.switch.edit


def switch_file(case: Case) -> str:
    """The text of a switch's configuration, under a line with the expected violation."""
    assert case.switch
    expected = f"{case.model.module}: a counterexample is expected, {case.switch.violates} breaks"
    head, _, rest = case.configuration().partition("\n")
    assert head == case.model.text.partition("\n")[0]
    return f"\\* {expected}; {case.model.name} with a switch on, generated by spec.tables\n{rest}"


def write_tables() -> None:
    """Write the files that are not current."""
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def main(arguments: list[str]) -> int:
    """The exit code: 0 if all files are current or were written, 1 if `--check` found a stale one."""
    if "--check" not in arguments:
        write_tables()
        return 0
    stale = [path.name for path, text in pages().items() if not path.exists() or path.read_text() != text]
    print(f"not current: {', '.join(stale)}; run python -m spec.tables" if stale else "all pages are current")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
