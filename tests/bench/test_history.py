"""linearizability/bench/history.py measures right answers: what it plants is found, all of it and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegauge
from linearizability.bench import history as bench
from linearizability.history.contract import Contract
from linearizability.history.store import read_store
from linearizability.pipeline.engine import judge_history
from linearizability.pipeline.local import context_of, judge_run
from linearizability.rules import RULES


def test_what_is_planted_is_found(tmp_path: Path) -> None:
    sizes = bench.sizes_of(40_000)
    bench.write_store(tmp_path, sizes)
    (history,) = read_store(tmp_path)
    findings = judge_run(history.facts, "x", context_of(Contract(), []), RULES.values())
    assert bench.counts(findings) == bench.expected(sizes) | {"int-poll-skip": 2 * len(sizes)}
    assert judge_history(history).verdict == "invalid"


@pytest.mark.parametrize(
    ("shape", "sizes", "lost"), [("small", [10] * 200, 2), ("skewed", [36_000, *[5_000] * 2], 3 * 6)]
)
def test_what_is_planted_in_uneven_partitions_is_found(tmp_path: Path, shape: str, sizes: list[int], lost: int) -> None:
    facts = 4_000 if shape == "small" else 80_000
    assert bench.sizes_of(facts, bench.Shape(shape)) == sizes
    bench.write_store(tmp_path, sizes)
    (history,) = read_store(tmp_path)
    findings = list(judge_run(history.facts, "x", context_of(Contract(), []), RULES.values()))
    bench.checked(findings, sizes)
    assert bench.counts(findings)["lost-write"] == lost


def test_a_fast_wrong_answer_does_not_count() -> None:
    with pytest.raises(RuntimeError, match="were planted"):
        bench.checked([], [10_000])


def test_local_rows(tmp_path: Path) -> None:
    sizes = bench.sizes_of(20_000)
    bench.write_store(tmp_path, sizes)
    rows = list(bench.measure_local(tmp_path, sizes, ["five", "partition", "all"]))
    assert [row["rules"] for row in rows] == ["five", "partition", "all"]
    assert all(row["facts"] == 19_998 and row["facts_per_s"] > 0 for row in rows)
    bench.draw(rows, tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()


def test_partitions_that_are_too_small_for_what_is_planted_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tidegauge.main(["bench", "history", "--facts", "100000", "--partitions", "50"])
    assert ended.value.code == 64 and "at least 10000 facts" in capsys.readouterr().err
