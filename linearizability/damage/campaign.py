"""`tidegauge bench damage`: start a broker once on each of many damaged folders; store the outcomes, so that a later run can
continue.

The store holds the counts by kind of file and verdict, the number of trials run for each end, and the first fifty failed
trials. Trials are drawn by their number: the same number damages the same byte as long as the folder is the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from linearizability.damage.trials import CLEAN, FAILURES, KILLED, Broker, Trial, Verdict, ground_of, reference, run
from linearizability.interrupting import announce, leave, until_interrupted
from linearizability.progress import Progress
from linearizability.stored import make_folder_of, replace_file

REFERENCE = "reference"
STORE = Path(__file__).parent / "results.json"
STORED_EVERY = 250
MOST_FAILURES_KEPT = 50


class Results:
    """The results for one broker so far."""

    def __init__(self, known: dict[str, Any] | None = None) -> None:
        known = known or {}
        self.run: dict[str, int] = {CLEAN: 0, KILLED: 0} | known.get("run", {})
        self.counts: Counter[tuple[str, str]] = Counter(
            {(kind, verdict): count for kind, row in known.get("kinds", {}).items() for verdict, count in row.items()}
        )
        self.failures: list[dict[str, Any]] = known.get("failures", [])

    def add(self, trial: Trial) -> None:
        self.run[trial.end] = trial.number + 1
        self.counts[trial.kind, trial.verdict] += 1
        if trial.verdict in FAILURES and len(self.failures) < MOST_FAILURES_KEPT:
            kept = ("number", "end", "damage", "verdict", "why")
            self.failures.append({name: getattr(trial, name) for name in kept})

    @property
    def failed(self) -> int:
        return sum(count for (_, verdict), count in self.counts.items() if verdict in FAILURES)

    def to_json(self) -> dict[str, Any]:
        kinds: dict[str, dict[str, int]] = {}
        for kind, verdict in sorted(self.counts):
            kinds.setdefault(kind, {})[str(verdict)] = self.counts[kind, verdict]
        return {"run": self.run, "kinds": kinds, "failures": self.failures}


def trials(broker: Broker, results: Results, until: int) -> Iterator[Trial]:
    """Run the broker's remaining trials, up to `until` of each end."""
    for end in (CLEAN, KILLED):
        if results.run[end] < until:
            ground = ground_of(broker, end)
            for number in range(results.run[end], until):
                yield run(broker, ground, end, number)


def table(results: Results) -> str:
    """A Markdown table: a row for each kind of file, a column for each verdict."""
    kinds = sorted({kind for kind, _ in results.counts})
    lines = ["| file | " + " | ".join(Verdict) + " |", "| --- |" + " --: |" * len(Verdict)]
    for kind in (*kinds, "all"):
        counts = [
            sum(n for (k, v), n in results.counts.items() if v == each and kind in (k, "all")) for each in Verdict
        ]
        lines.append(f"| {kind} | " + " | ".join(str(count or "") for count in counts) + " |")
    return "\n".join(lines)


def read_store(path: Path) -> dict[str, Any]:
    """The stored results by broker; empty where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_store(path: Path, broker: str, results: Results) -> None:
    """Store the results of a broker."""
    replace_file(path, json.dumps(read_store(path) | {broker: results.to_json()}, indent=1) + "\n")


def damage(
    count: Annotated[
        int, typer.Option("--trials", min=1, help="Trials of each end of a run, clean and killed.")
    ] = 2_500,
    target: Annotated[
        str, typer.Option(help="A target of one node with Kafka's files; default: the reference, in this process.")
    ] = REFERENCE,
    resume: Annotated[bool, typer.Option("--resume", help="Go on behind the trials that are stored.")] = False,
    store: Annotated[Path, typer.Option(help="Where the results are kept.")] = STORE,
    json_: Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")] = False,
) -> None:
    """Damage one file of a data folder, start a broker on it, and compare what is served with what was.

    A start is right, or refused by a message that names the file, or what is missing is reported; exit 1 where anything is
    silently less, or refused without a name.
    """
    make_folder_of(store)
    results = Results(read_store(store).get(target) if resume else None)
    said: dict[str, Any] = {"store": str(store)}
    with until_interrupted(said), nullcontext(reference()) if target == REFERENCE else _kafka(target) as broker:
        _run(broker, results, count, store)
    announce(said)
    print(table(results))
    if json_:
        print(json.dumps(said | {"trials": sum(results.run.values()), "failed": results.failed}))
    leave(said, 1 if results.failed else 0)


def _kafka(target: str) -> AbstractContextManager[Broker]:
    from linearizability.damage.kafka import kafka

    return kafka(target)


def _run(broker: Broker, results: Results, count: int, store: Path) -> None:
    missing = sum(max(count - run, 0) for run in results.run.values())
    stored_every = STORED_EVERY if broker.name == REFERENCE else 1  # a start of Kafka takes seconds
    try:
        with Progress(missing) as progress:
            for done, trial in enumerate(trials(broker, results, count), 1):
                results.add(trial)
                if trial.verdict in FAILURES:
                    progress.keep(f"{trial.end} {trial.number}: {trial.damage}: {trial.verdict}: {trial.why}")
                progress.often(f"{done} of {missing} trials, {results.failed} failed", done)
                if done % stored_every == 0:
                    write_store(store, broker.name, results)
    finally:
        write_store(store, broker.name, results)
