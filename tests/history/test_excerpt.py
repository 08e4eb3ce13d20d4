"""An excerpt is judged like the whole: what is wrong at its offsets is still wrong, and nothing else appears."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linearizability.history.contract import Contract
from linearizability.history.excerpt import excerpt
from linearizability.history.operations import drain, list_offsets, poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check
from tests.history.test_commands import run

KEY, OTHER = "t-0", "t-1"
RECORDS, LOST, UNKNOWN = 60, 40, 7777
REGRESSIONS = Path(__file__).parent / "regressions"


def record(folder: Path) -> Path:
    """Sixty acknowledged sends to each of two partitions. The final read of the first finds another record at offset 40."""
    contract = Contract(acks="all", idempotence=False)
    with Recorder.open(folder, process=1, contract=contract, run="r") as producer:
        for offset in range(RECORDS):
            for key in (KEY, OTHER):
                operation = producer.invoke("send", [send(key, offset)])
                producer.ok(operation, [send(key, offset, offset=offset)])
        producer.invoke("send", [send(KEY, UNKNOWN)])
    with Recorder.open(folder, process=2, contract=contract, run="r") as consumer:
        consumer.ok(consumer.invoke("list_offsets"), [list_offsets(KEY, 0, RECORDS)])
        consumer.ok(consumer.invoke("assign", keys=[KEY, OTHER]))
        final = {key: consumer.invoke("drain") for key in (KEY, OTHER)}
        for first in range(0, RECORDS, 10):
            found = [(offset, UNKNOWN if offset == LOST else offset) for offset in range(first, first + 10)]
            other = [(offset, offset) for offset in range(first, first + 10)]
            consumer.ok(consumer.invoke("poll", [poll()]), [poll({KEY: found, OTHER: other})])
        for key, operation in final.items():
            consumer.ok(operation, [drain(key, 0, RECORDS, RECORDS)])
    return folder


def judged(folder: Path) -> tuple[str, dict[str, int]]:
    (judgement,) = check([folder], engine="local")
    return judgement.verdict, judgement.anomalies


def test_what_is_wrong_is_still_wrong(tmp_path: Path) -> None:
    whole = record(tmp_path / "whole")
    excerpt(whole, tmp_path / "part", KEY, LOST - 3, LOST + 3)
    assert judged(tmp_path / "part") == judged(whole)
    assert judged(whole)[0] == "invalid" and judged(whole)[1]["lost-write"] == 1


@pytest.mark.parametrize(("key", "first", "last"), [(KEY, 0, 30), (KEY, 41, 59), (OTHER, 30, 50)])
def test_where_nothing_is_wrong_nothing_is_found(tmp_path: Path, key: str, first: int, last: int) -> None:
    excerpt(record(tmp_path / "whole"), tmp_path / "part", key, first, last)
    assert judged(tmp_path / "part") == ("valid", {})


def test_only_what_concerns_the_offsets_is_kept(tmp_path: Path) -> None:
    result = run("excerpt", record(tmp_path / "whole"), tmp_path / "part", "--key", KEY, "--offsets", "10-19")
    assert result.exception is None
    # two headers and ends, ten sends and one poll in two events each, listed offsets, one drain
    assert result.stdout.startswith("30 events written")


def test_wrong_usage(tmp_path: Path) -> None:
    whole = record(tmp_path / "whole")
    for arguments, sentence in [
        (("--key", KEY, "--offsets", "900-950"), "has no record of t-0 at the offsets 900 to 950"),
        (("--key", KEY, "--offsets", "9-5"), "'9-5' is not FIRST-LAST"),
    ]:
        result = run("excerpt", whole, tmp_path / "part", *arguments)
        assert result.exception is not None and sentence in str(result.exception)
        assert not (tmp_path / "part").exists()


@pytest.mark.parametrize("folder", sorted(REGRESSIONS.glob("*/")), ids=lambda folder: folder.name)
def test_histories_that_once_showed_a_bug_still_do(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    verdict, anomalies = judged(folder)
    assert (verdict, anomalies) == (expected["verdict"], expected["anomalies"])


def test_there_are_such_histories() -> None:
    assert len(list(REGRESSIONS.glob("*/expected.json"))) >= 1


def test_a_damaged_history_is_named(tmp_path: Path) -> None:
    whole = record(tmp_path / "whole")
    path = sorted(whole.glob("*.jsonl"))[0]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], lines[4][:20] + "\n", *lines[5:]]))
    result = run("excerpt", whole, tmp_path / "part", "--key", KEY, "--offsets", "10-19")
    assert result.return_value == 2 and f"{path}:5: " in result.stderr and not (tmp_path / "part").exists()
