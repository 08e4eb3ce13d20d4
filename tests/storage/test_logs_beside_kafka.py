"""A log of ours does as Apache Kafka's UnifiedLog and Cleaner: appends, fencing, markers, cuts, compactions, restarts."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_classes import answers_of
from tests.storage.paired_log import DrawnSteps, PairedLog, first_difference

SOURCE = Path(__file__).parent / "java" / "Logs.java"
LOGS, STEPS = 60, 60


def kafkas(pairs: list[PairedLog]) -> list[dict[str, Any]]:
    """The result of each step on Kafka's logs."""
    return answers_of(SOURCE, (step for pair in pairs for step in pair.steps))


def drawn(folder: Path, seed: int) -> PairedLog:
    chance = random.Random(seed)
    pair = PairedLog(folder / str(seed) / "t-0", chance, compacts=seed % 2 == 0)
    DrawnSteps(pair, chance, follows=seed % 4 > 1).run(STEPS)
    return pair


def differences(folder: Path, seeds: range) -> list[str]:
    """The first differing step of each pair of logs that differs."""
    pairs = [drawn(folder, seed) for seed in seeds]
    answers = iter(kafkas(pairs))
    found: list[str] = []
    for seed, pair in zip(seeds, pairs, strict=True):
        was_loaded = False
        first: str | None = None
        for number, (step, mine) in enumerate(zip(pair.steps, pair.ours, strict=True)):
            was_loaded |= number > 0 and json.loads(step)["op"] in ("open", "truncate")
            difference = first_difference(mine, next(answers), was_loaded=was_loaded)
            if difference is not None and first is None:
                first = f"seed {seed}, step {number}, {step[:200]}: {difference}"
        found += [first] if first is not None else []
    assert next(answers, None) is None
    return found


@pytest.mark.java
def test_logs_do_as_kafkas(tmp_path: Path) -> None:
    found = differences(tmp_path, range(LOGS))
    assert not found, f"{len(found)} of {LOGS} logs differ: " + "\n".join(found[:3])
