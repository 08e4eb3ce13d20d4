"""The counterexamples of the switches, with which clusters are driven, as TLC found them, and the digest of TLC's input.

`python -m tests.spec.counterexamples` updates `counterexamples.jsonl`; it runs TLC where a digest has changed (minutes at most).
A record with another digest is not used.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from spec import coordinator_schedules, fault_schedules, quorum_schedules
from spec.behaviours import schedule
from spec.catalogue import all_cases
from spec.checker import Job, Verdict, check

RECORDS = Path(__file__).with_suffix(".jsonl")
NAMES = sorted({*fault_schedules.MUTANT_OF, *quorum_schedules.MUTANT_OF, *coordinator_schedules.MUTANT_OF})

AT_THE_ANSWER = {"CommitBeforeMinIsr": ("Fences = 1", "Fences = 0")}
"""Switch -> (line of its model, the line instead), so that a cluster can be driven through its counterexample: a broker that
replays a fencing also replays earlier changes of settings; only a response may arrive before them."""


def job_of(name: str) -> Job:
    job = all_cases()[name].job()
    had, has = AT_THE_ANSWER.get(name, ("", ""))
    assert had in job.configuration
    return replace(job, configuration=job.configuration.replace(had, has)) if had else job


def digest_of(name: str) -> str:
    """The digest of the case with the line changed as above."""
    return all_cases()[name].digest() + "".join(AT_THE_ANSWER.get(name, ()))


@cache
def records() -> dict[str, dict[str, Any]]:
    return {row["case"]: row for row in map(json.loads, RECORDS.read_text().splitlines())} if RECORDS.exists() else {}


def counterexample(name: str) -> dict[str, Any]:
    """The schedule of a switch: the recorded one, else TLC's."""
    recorded = records().get(name)
    return recorded["schedule"] if recorded and recorded["digest"] == digest_of(name) else found_by_tlc(name)


@cache
def found_by_tlc(name: str) -> dict[str, Any]:
    outcome = check(job_of(name))
    assert outcome.verdict == Verdict.VIOLATED, outcome.reason
    return json.loads(json.dumps(schedule(all_cases()[name], "counterexample", outcome.trace)))


if __name__ == "__main__":
    rows = [{"case": name, "digest": digest_of(name), "schedule": counterexample(name)} for name in NAMES]
    RECORDS.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
