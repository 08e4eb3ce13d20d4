"""Run a finding's reproduction. The outcome has three values: a reproduction that did not run shows nothing."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from linearizability.findings.finding import Finding, Outcome, load
from linearizability.targets import TargetError, WrongTarget

REPOSITORY = Path(__file__).parents[2]
RELEASES = "TIDEGAUGE_RELEASES"
"""The environment variable that names the releases of the tests that show a finding."""
KEPT_LINES = 30

Seen = tuple[bool | None, list[str]]
"""Whether the finding was shown (None: nothing was judged), and the observations."""


def reproduce(name: str, target: str = "") -> Outcome:
    """Run the reproduction of a finding on a target. Errors: UnknownFinding."""
    finding = load(name)
    spec = target or f"kafka:{finding.releases[0]}"
    if spec.startswith("kafka:") and spec.count(":") == 1:
        spec += finding.reproduction.suffix
    began = time.monotonic()
    try:
        shown, seen = _KINDS[finding.reproduction.kind](name.replace("-", "_"), finding, spec)
    except (TargetError, WrongTarget, OSError, subprocess.SubprocessError) as error:
        shown, seen = None, [str(error)]
    verdict = "could not run" if shown is None else "shown" if shown else "not shown"
    seconds = round(time.monotonic() - began, 1)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Outcome(verdict=verdict, target=spec, seen=seen[-KEPT_LINES:], seconds=seconds, day=day)


def _clients(name: str, finding: Finding, spec: str) -> Seen:
    module = importlib.import_module(f"linearizability.findings.{name}.reproduction")
    with tempfile.TemporaryDirectory(prefix="finding-") as folder:
        return module.reproduce(spec, Path(folder))


def _test(name: str, finding: Finding, spec: str) -> Seen:
    """Run a test that passes where the finding is shown. Only a failed assertion means that it is not shown."""
    file = REPOSITORY / finding.reproduction.arguments[0]
    if not spec.startswith("kafka:") or not file.is_file():
        return None, [
            f"{spec} is no release of Kafka" if file.is_file() else "the tests are not here: a checkout is needed"
        ]
    with tempfile.TemporaryDirectory(prefix="finding-") as folder:
        report = Path(folder) / "report.xml"
        command = [
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "-m",
            "slow",
            "-k",
            "kafka",
            str(file),
            f"--junitxml={report}",
        ]
        done = _run(command, {RELEASES: spec.split(":")[1]})
        seen = [line for line in done.stdout.splitlines() if line and not line.startswith(("=", "(", "["))]
        cases = [*ElementTree.parse(report).iter("testcase")] if report.is_file() else []
    failures = [
        each.get("message", "") for case in cases for each in case if each.tag in ("failure", "error", "skipped")
    ]
    if cases and not failures:
        return True, seen
    asserted = bool(failures) and all(each.startswith(("assert", "AssertionError")) for each in failures)
    return False if asserted else None, seen + failures


def _requirement(name: str, finding: Finding, spec: str) -> Seen:
    done = _run(["-m", "tidegauge", "run", *finding.reproduction.arguments, "--target", spec, "--json"])
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    judged = [line for line in lines if line.get("id") in finding.reproduction.arguments]
    seen = [f"{line['id']}: {line['verdict']} {line['reason']}".strip() for line in judged]
    if any(text in line for line in seen for text in finding.reproduction.shows):
        return True, seen
    passed = bool(judged) and all(line["verdict"] == "pass" for line in judged)
    return False if passed else None, seen or ["the suite judged nothing: its messages are above"]


def _hunt(name: str, finding: Finding, spec: str) -> Seen:
    done = _run(["-m", "tidegauge", "hunt", "--target", spec, *finding.reproduction.arguments, "--json"])
    last = done.stdout.splitlines()[-1:]
    summary: dict[str, Any] = (
        json.loads(last[0])
        if last
        else {"verdict": "error", "error": "the hunt gave no summary: its messages are above"}
    )
    found = {**summary.get("anomalies", {}), **summary.get("permitted", {})}
    seen = [
        f"{summary['verdict']}: {', '.join(f'{rule} × {count}' for rule, count in found.items())}",
        summary.get("error", ""),
    ]
    seen += [
        f"seed {summary.get('seed')}, {summary.get('rounds')} rounds, {summary.get('seconds')} s",
        *summary.get("reasons", [])[:5],
    ]
    seen = [line for line in seen if line]
    if summary["verdict"] == "invalid":
        return (True if found.keys() & {*finding.reproduction.shows} else None), seen
    return False if summary["verdict"] == "valid" else None, seen


def _run(arguments: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Python command of ours; its standard error goes to ours."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=os.environ | (environment or {}),
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=None,
    )


_KINDS: dict[str, Callable[[str, Finding, str], Seen]] = {
    "clients": _clients, "test": _test, "requirement": _requirement, "hunt": _hunt,
}  # fmt: skip
