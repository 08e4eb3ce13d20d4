"""What a log that keeps its contract shows of itself accuses no broker, and what a broken one shows is not valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from linearizability.simulation.judging import judge_histories
from tests.rules.sound_log import Defect, Play

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
