"""The compaction benchmark: what it fills logs with, and that it measures a compaction that happened."""

from collections import Counter
from pathlib import Path

import pytest

from linearizability.bench.brokers import open_for_bench
from linearizability.bench.compaction import CASES, CONFIG, SEGMENT_BYTES, batches, measure, show
from reference.protocol.records.batch import read_batches, records_of


@pytest.mark.parametrize("name", CASES)
def test_a_key_has_about_as_many_records_as_the_case_says(name: str) -> None:
    case = CASES[name]
    keys = Counter(
        bytes(record.key or b"")
        for data in batches(case, 1_000_000)
        for batch in read_batches(data)
        for record in records_of(batch.data)
    )
    assert sum(keys.values()) == 1_000_000 // case.record_bytes
    assert sum(keys.values()) / len(keys) == pytest.approx(case.copies, rel=0.1)


@pytest.mark.slow
def test_it_measures_the_reference(tmp_path: Path) -> None:
    case = CASES["1 KB, 4 of a key"]
    with open_for_bench("reference:1", tmp_path, CONFIG) as target:
        found = measure(target, case, batches(case, 2 * SEGMENT_BYTES))
    assert found["left"] < 0.6
    assert found["mb_per_s"] > 0
    table = {"subject": "a", "against": "b", "rows": [{"case": "c", "ratio": 1.0, "medians": {"a": found, "b": found}}]}
    show(table)
