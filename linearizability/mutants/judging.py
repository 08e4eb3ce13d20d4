"""Finds for each mutant the requirements that fail, and the number of schedules that the simulation needs.

    python -m linearizability.mutants judge [NAME...]

runs the conformance suite (as a command, on the requirements or areas that the mutant names) and `fuzz`, stores the results in
`results.json`, and writes FOUND.md's table from them. Requirements that also fail on the unchanged reference are left out: they
prove nothing about a mutant.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from linearizability.mutants.registry import MUTANTS, Mutant
from linearizability.pages import write_part

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
PAGE = FOLDER / "FOUND.md"
MAX_SCHEDULES = 400
RUN_TIMEOUT_S = 900


def judge(names: list[str]) -> int:
    """Judge these mutants, by default those of `judged`, and store the results; return 0 if all were caught as they should be."""
    chosen = [MUTANTS[name] for name in names or judged()]
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    areas = sorted({area for mutant in chosen for area in mutant.caught_by})
    baseline = _failing("reference:1", areas) if areas else set()
    uncaught: list[str] = []
    for mutant in chosen:
        try:
            result = known[mutant.name] = _judge(mutant, baseline)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(json.dumps({"mutant": mutant.name, "error": str(error)}), flush=True)
            uncaught.append(mutant.name)
            continue
        if (mutant.caught_by and not result["requirements"]) or (is_fuzzed(mutant) and not result["schedules"]):
            uncaught.append(mutant.name)
        print(json.dumps({"mutant": mutant.name} | result), flush=True)
        RESULTS.write_text(json.dumps({name: known[name] for name in MUTANTS if name in known}, indent=1) + "\n")
        write_table()
    print(json.dumps({"mutants": len(chosen), "uncaught": uncaught}))
    return 1 if uncaught else 0


def judged() -> list[str]:
    """The mutants of FOUND.md's table. Those that need several nodes and a workload other than records are in the table of
    `tidegauge bench fuzz`; those of groups and of compaction are there or in a table of their own."""
    return [
        name
        for name, mutant in MUTANTS.items()
        if (mutant.nodes == 1 or mutant.workload != "records" or mutant.caught_by)
        and not _has_its_own_table(mutant)
        and (mutant.caught_by or is_fuzzed(mutant))
    ]


def _has_its_own_table(mutant: Mutant) -> bool:
    return mutant.replacement.__module__.rpartition(".")[2] in ("group_bugs", "compaction_bugs")


def is_fuzzed(mutant: Mutant) -> bool:
    """Whether runs with the workload `records` must find the mutant; `tidegauge bench fuzz` has the other workloads."""
    return mutant.fuzz and mutant.workload == "records"


def _judge(mutant: Mutant, baseline: set[str]) -> dict[str, Any]:
    result: dict[str, Any] = {"requirements": [], "schedules": None, "rule": "", "seconds": None}
    if mutant.caught_by:
        target = f"exec:{sys.executable} -m linearizability.mutants adapter {mutant.name}"
        result["requirements"] = sorted(_failing(target, [*mutant.caught_by]) - baseline)
    if is_fuzzed(mutant):
        said = _fuzz(mutant.name)
        result["schedules"] = said["schedules_to_first"]
        result["seconds"] = said["seconds_to_first"]
        result["rule"] = said["violations"][0]["rule"] if said["violations"] else ""
    return result


def _failing(target: str, selection: list[str]) -> set[str]:
    """The requirements that fail on a target. Errors: RuntimeError if the suite could not judge the target at all."""
    *judged, summary = _tidegauge("run", *selection, "--target", target)
    failing = {line["id"] for line in judged if line.get("verdict") == "fail"}
    if not failing and summary["verdict"] not in ("pass", "fail"):
        raise RuntimeError(f"{target}: {summary['reason']}")
    return failing


def _fuzz(name: str) -> dict[str, Any]:
    return _tidegauge("fuzz", "--mutant", name, "--until-found", "--schedules", str(MAX_SCHEDULES), "--jobs", "1")[-1]


def _tidegauge(*arguments: str) -> list[dict[str, Any]]:
    """Run a command with a temporary folder for its results; return its JSON lines. Errors: RuntimeError if it prints none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tidegauge", *arguments, "--json", "--results", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{' '.join(arguments)} exited with {done.returncode}: {done.stderr.strip()[-500:]}")
    return lines


def table(results: dict[str, Any]) -> str:
    """The results of all mutants as a Markdown table."""
    rows = [
        "| mutant | what is wrong | requirements that fail | fuzz: schedules | broken promise |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in judged():
        mutant, result = MUTANTS[name], results.get(name)
        if result is None:
            rows.append(f"| `{name}` | {mutant.bug} | not judged yet | | |")
            continue
        requirements = ", ".join(result["requirements"]) or ("**none**" if mutant.caught_by else "–")
        schedules = result["schedules"] or (f"**not in {MAX_SCHEDULES}**" if is_fuzzed(mutant) else "–")
        rows.append(f"| `{name}` | {mutant.bug} | {requirements} | {schedules} | {result['rule']} |")
    return "\n".join(rows)


def write_table() -> None:
    """Write the table of the stored results into FOUND.md."""
    write_part(PAGE, "table", table(json.loads(RESULTS.read_text())))


__all__ = ["is_fuzzed", "judge", "judged", "table", "write_table"]
