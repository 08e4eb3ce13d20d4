"""Kept comparisons: a run's rows replace those of the same loads, and the page holds what the store does."""

from pathlib import Path
from typing import Any

import pytest

from linearizability.bench.broker import Plan, row_of
from linearizability.bench.compaction import row_of as compaction_row_of
from linearizability.bench.comparisons import PAGE, STORE, Comparison, Row, draw, read, record, table, write

MARKED = "before\n<!-- reference-pypy:3, PLAINTEXT: begin -->\nold\n<!-- reference-pypy:3, PLAINTEXT: end -->\nafter\n"
PLAN = Plan((), 3, 1.0, 0.0)


def rounds_of(*rates: float, cpu: float = 10.0) -> list[dict[str, Any]]:
    others = dict.fromkeys(("records_per_s", "mb_per_s", "p50_us", "p99_us"), 2.0)
    return [{"requests_per_s": rate, "broker_cpu_us": cpu} | others for rate in rates]


def measured(nodes: int, *rows: dict[str, Any], subject: str = "reference-pypy:3") -> dict[str, Any]:
    idle = {name: {"nodes": nodes} for name in (subject, "kafka")}
    return {"subject": subject, "against": "kafka", "security": "PLAINTEXT", "idle": idle, "rows": [*rows]}


def row(case: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], subject: str = "reference-pypy:3"):
    return row_of(case, {subject: ours, "kafka": theirs}, PLAN)


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "page.md").write_text(MARKED)
    return {"store": tmp_path / "kept.json", "page": tmp_path / "page.md", "picture": tmp_path / "kept.svg"}


def test_a_row_replaces_the_one_of_its_load_and_others_stay(places: dict[str, Path]) -> None:
    slow, fast = rounds_of(100, 102, 300, cpu=20), rounds_of(200, 201, 202)
    record(measured(3, row("a", slow, fast), row("b", fast, fast)), "2026-01-01", **places)
    record(measured(3, row("b", fast, slow)), "2026-01-02", **places)
    (kept,) = read(places["store"]).values()
    assert [(each.load, each.rate_ratio, each.cpu_ratio, each.steady, each.date) for each in kept.rows.values()] == [
        ("a", 0.507, 2.0, False, "2026-01-01"),
        ("b", 1.971, 0.5, False, "2026-01-02"),
    ]
    lines = places["page"].read_text().splitlines()
    assert lines[4] == "| ~ a | 102 /s | 201 /s | 0.51 | 2.00 | 1.00 | 2026-01-01 |"
    assert (lines[0], lines[-1], len(lines)) == ("before", "after", 8)
    assert "reference-pypy:3" in places["picture"].read_text()


def test_the_number_of_nodes_is_a_part_of_the_name_and_an_unknown_name_is_an_error(places: dict[str, Path]) -> None:
    fast = rounds_of(1, 1, 1)
    record(measured(3, row("a", fast, fast, "reference-pypy"), subject="reference-pypy"), "2026-01-01", **places)
    assert [*read(places["store"])] == ["reference-pypy:3, PLAINTEXT"]
    with pytest.raises(ValueError, match="no part <!-- reference-pypy:1, PLAINTEXT: begin -->"):
        record(measured(1, row("a", fast, fast)), "2026-01-01", **places)


def test_compactions_are_kept_without_a_p99() -> None:
    found = [{"seconds": 1.0, "mb_per_s": rate, "cpu_ms_per_mb": 3.0, "left": 0.5} for rate in (50.0, 51.0, 52.0)]
    assert compaction_row_of("a", {"ours": found, "theirs": found})["steady"]
    kept = Comparison(
        "reference:1", "kafka", "PLAINTEXT", {"a": Row("a", 51, 102, "MB/s", 0.5, 1, None, True, "2026-01-01")}
    )
    assert table(kept).splitlines()[2] == "| a | 51.0 MB/s | 102 MB/s | 0.50 | 1.00 | – | 2026-01-01 |"


def test_the_page_holds_what_is_kept(tmp_path: Path) -> None:
    kept, text = read(), PAGE.read_text()
    assert kept
    for each in kept.values():
        assert f"<!-- {each.name}: begin -->\n{table(each)}\n<!-- {each.name}: end -->" in text
    write(kept, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == STORE.read_text()
    draw(kept.values(), tmp_path / "picture.svg")
