"""A member of the quorum does as Apache Kafka's KafkaRaftClient: votes, epochs, fetches, snapshots, changes of voters, restarts."""

import argparse
import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import kafka_classes
from tests.controller.drawn_quorum import DrawnSteps
from tests.controller.paired_quorum import Comparison, PairedQuorum

SOURCE = Path(__file__).parent / "java" / "Quorums.java"
MEMBERS, STEPS = 60, 60


def drawn(folder: Path, seed: int, steps: int) -> PairedQuorum:
    pair = PairedQuorum(changing=seed % 2 == 1, folder=str(folder / str(seed)))
    DrawnSteps(pair, Random(seed)).run(steps)
    return pair


def first_difference(pair: PairedQuorum, kafkas: list[Any]) -> str | None:
    comparison = Comparison(is_static=not pair.changing)
    for number, (step, mine, theirs) in enumerate(zip(pair.steps, pair.ours, kafkas, strict=True)):
        if found := comparison.difference(json.loads(step), mine, theirs):
            return f"step {number}, {step[:100]}: {found}"
    return None


def differences(seeds: range, steps: int) -> list[str]:
    """The first differing step of each pair of members that differs."""
    return [*kafka_classes.differences(SOURCE, seeds, partial(drawn, steps=steps), first_difference, len(seeds))]


@pytest.mark.java
def test_members_do_as_kafkas() -> None:
    found = differences(range(MEMBERS), STEPS)
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
    found = differences(range(arguments.first, arguments.first + arguments.members), arguments.steps)
    print(*sorted(found, key=len), f"{len(found)} of {arguments.members} members differ", sep="\n")
    raise SystemExit(bool(found))
