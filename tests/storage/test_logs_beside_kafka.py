"""A log of ours does as Apache Kafka's UnifiedLog and Cleaner: appends, fencing, markers, cuts, compactions, restarts."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_classes import differences
from tests.storage.paired_log import DrawnSteps, PairedLog, first_difference

SOURCE = Path(__file__).parent / "java" / "Logs.java"
LOGS, STEPS = 60, 60


def drawn(folder: Path, seed: int) -> PairedLog:
    chance = random.Random(seed)
    pair = PairedLog(folder / str(seed) / "t-0", chance, compacts=seed % 2 == 0)
    DrawnSteps(pair, chance, follows=seed % 4 > 1).run(STEPS)
    return pair


def first_differing_step(pair: PairedLog, kafkas: list[Any]) -> str | None:
    was_loaded = False
    for number, (step, mine, theirs) in enumerate(zip(pair.steps, pair.ours, kafkas, strict=True)):
        was_loaded |= number > 0 and json.loads(step)["op"] in ("open", "truncate")
        if found := first_difference(mine, theirs, was_loaded=was_loaded):
            return f"step {number}, {step[:200]}: {found}"
    return None


@pytest.mark.java
def test_logs_do_as_kafkas() -> None:
    found = [*differences(SOURCE, range(LOGS), drawn, first_differing_step, LOGS)]
    assert not found, f"{len(found)} of {LOGS} logs differ: " + "\n".join(found[:3])
