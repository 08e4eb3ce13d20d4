"""A member of the quorum does as Apache Kafka's KafkaRaftClient: votes, epochs, fetches, snapshots, changes of voters, restarts."""

import argparse
import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.controller.drawn_quorum import DrawnSteps
from tests.controller.paired_quorum import Comparison, PairedQuorum
from tests.kafka_classes import answers_of

SOURCE = Path(__file__).parent / "java" / "Quorums.java"
MEMBERS, STEPS = 60, 60
FOLDERS = Path("/dev/shm") if Path("/dev/shm").exists() else None
"""Where Kafka's members keep their logs: they flush often."""


def kafkas(pairs: list[PairedQuorum]) -> list[dict[str, Any]]:
    """The result of each step at Kafka's members."""
    return answers_of(SOURCE, (step for pair in pairs for step in pair.steps))


def drawn(folder: Path, seed: int, steps: int) -> PairedQuorum:
    pair = PairedQuorum(changing=seed % 2 == 1, folder=str(folder / str(seed)))
    DrawnSteps(pair, Random(seed)).run(steps)
    return pair


def differences(folder: Path, seeds: range, steps: int) -> list[str]:
    """The first differing step of each pair of members that differs."""
    pairs = [drawn(folder, seed, steps) for seed in seeds]
    answers = iter(kafkas(pairs))
    found: list[str] = []
    for seed, pair in zip(seeds, pairs, strict=True):
        comparison = Comparison(is_static=not pair.changing)
        first: str | None = None
        for number, (step, mine) in enumerate(zip(pair.steps, pair.ours, strict=True)):
            theirs = next(answers)
            difference = None if first is not None else comparison.difference(json.loads(step), mine, theirs)
            if difference is not None:
                first = f"seed {seed}, step {number}, {step[:100]}: {difference}"
        found += [first] if first is not None else []
    return found


@pytest.mark.java
def test_members_do_as_kafkas() -> None:
    with tempfile.TemporaryDirectory(dir=FOLDERS) as folder:
        found = differences(Path(folder), range(MEMBERS), STEPS)
    assert not found, f"{len(found)} of {MEMBERS} members differ: " + "\n".join(found[:3])


def test_drawn_members_take_every_kind_of_step(tmp_path: Path) -> None:
    taken = {json.loads(step)["op"] for seed in range(MEMBERS) for step in drawn(tmp_path, seed, STEPS).steps}
    assert taken == {"begin", "time", "request", "response", "lost", "restart", "snapshot", "append"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--members", type=int, default=400)
    parser.add_argument("--steps", type=int, default=120)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=FOLDERS) as folder:
        seeds = range(arguments.first, arguments.first + arguments.members)
        found = differences(Path(folder), seeds, arguments.steps)
    print(*sorted(found, key=len), f"{len(found)} of {arguments.members} members differ", sep="\n")
    raise SystemExit(bool(found))
