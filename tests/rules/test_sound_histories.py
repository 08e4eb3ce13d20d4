"""What a log that keeps its contract shows of itself accuses no broker, and what a broken one shows is not valid.

A part of such a history accuses none either: files that are missing, a beginning, a middle, an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import pytest

from linearizability.history.streams import FileSummary
from linearizability.pipeline.engine import ALL_RULES
from linearizability.pipeline.verdict import Judgement
from linearizability.pipeline.watch import Watch, WatchedFile
from linearizability.simulation.drawing import draw
from linearizability.simulation.history_recorder import ClientHistory
from linearizability.simulation.judging import judge_histories, run_schedule
from tests.rules.sound_log import Defect, Play
from tests.rules.sound_log import Defect as Broken

MET = {
    "acks below all acknowledge before the in-sync replicas have the record",
    "compaction keeps only the last record of each key",
    "a producer without idempotence may store a record twice when it retries",
    "the consumer reads uncommitted records",
    "unclean leader election may drop what the elected replica lacks",
}
"""Reasons without which these histories would show nothing."""

FOUND = [242]
"""Seeds that were accused once: by a final read that began before a transaction was shown to be committed."""


def sound(seeds: Iterable[int]) -> Counter[str]:
    """The reasons for which anomalies were permitted; none was a violation."""
    reasons = Counter[str]()
    for seed in seeds:
        play = Play(seed)
        judgement = judge_histories(f"seed-{seed}", play.histories)
        assert judgement.verdict != "invalid", (seed, sorted(each.name for each in play.has), judgement.to_json())
        reasons.update(reason for permitted in judgement.permitted.values() for reason in permitted)
        reasons.update(["excused"] if judgement.excused else [])
    return reasons


def test_a_log_that_keeps_its_contract_is_not_accused() -> None:
    reasons = sound([*range(60), *FOUND])
    assert set(reasons) >= {*MET, "excused"}, reasons


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_log_that_keeps_its_contract_is_not_accused_ten_thousand_times() -> None:
    sound(range(100_000, 110_000))


@pytest.mark.parametrize("defect", Defect, ids=lambda defect: defect.name)
def test_a_log_that_breaks_its_contract_is_not_called_valid(defect: Defect) -> None:
    broken = [play for seed in range(10) if (play := Play(seed, defect)).is_broken]
    verdicts = Counter(judge_histories("broken", play.histories).verdict for play in broken)
    assert verdicts["invalid"] > 2 and not verdicts["valid"], verdicts


ALWAYS = 1 << 62


def part_of(histories: Sequence[ClientHistory], begin: int, end: int) -> Judgement:
    """What these clients recorded from one time to another, with whole transactions, and all marks."""
    watch = Watch(end - begin)
    for each in histories:
        summary = FileSummary(str(each.process), "part", each.process, contract=each.contract)
        file = watch.files[summary.file] = WatchedFile(summary.file, summary)
        for event in each.events:
            if event["time"] <= end:
                file.take(event, summary)
    judgement = watch.judge(end, ALL_RULES)
    assert judgement is not None
    return judgement


def drawn_part(histories: Sequence[ClientHistory], rng: Random) -> Judgement:
    """Marks are never missing: they are the recorder's own."""
    times = [event["time"] for each in histories for event in each.events]
    begin, end = sorted(rng.choices(times, k=2))
    begin, end = 0 if rng.random() < 0.3 else begin, ALWAYS if rng.random() < 0.3 else end
    chosen = rng.sample(histories, rng.randint(1, len(histories))) if rng.random() < 0.5 else [*histories]
    marking = [each for each in histories if any(event["type"] == "mark" for event in each.events)]
    return part_of([*chosen, *(each for each in marking if each not in chosen)], begin, end)


def plays(seeds: range) -> None:
    for seed in seeds:
        play, rng = Play(seed), Random(seed)
        for _ in range(4):
            judgement = drawn_part(play.histories, rng)
            assert judgement.verdict == "unknown", (seed, sorted(each.name for each in play.has), judgement.to_json())


def runs(seeds: range, workload: str) -> None:
    for seed in seeds:
        outcome, rng = run_schedule(draw(seed, None, 3, workload, "kraft"))[0], Random(seed)
        for _ in range(4):
            judgement = drawn_part(outcome.histories, rng)
            assert judgement.verdict == "unknown", (seed, workload, judgement.to_json())


def test_a_part_of_a_sound_log() -> None:
    plays(range(150))


@pytest.mark.parametrize("workload", ["records", "transactions", "groups"])
def test_a_part_of_a_simulated_run(workload: str) -> None:
    runs(range(5000, 5002), workload)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workload", ["records", "transactions", "groups", "copy"])
def test_many_parts(workload: str) -> None:
    plays(range(200_000, 202_000))
    runs(range(210_000, 210_050), workload)


@pytest.mark.parametrize("defect", [Broken.TWICE, Broken.OTHER], ids=lambda defect: defect.name)
def test_what_is_there_shows_in_a_part(defect: Broken) -> None:
    """The last three quarters of the time are enough for some of them."""
    verdicts = Counter[str]()
    for seed in range(40):
        play = Play(seed, defect)
        if play.is_broken:
            quarter = max(event["time"] for each in play.histories for event in each.events) // 4
            verdicts[part_of(play.histories, quarter, ALWAYS).verdict] += 1
    assert verdicts["invalid"] > 2 and not verdicts["valid"], verdicts
