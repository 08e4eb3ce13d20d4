"""bench scale: the order of its steps, what is kept, and one short step on a real process."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linearizability.bench import scale_cluster, scale_logs
from linearizability.bench.brokers import open_for_bench
from linearizability.bench.commands import app
from linearizability.bench.load import make_batch
from linearizability.bench.scale import KINDS, Step, read_store, steps, write_store
from linearizability.bench.scale_cluster import led_by
from linearizability.bench.scale_ids import await_code, of_producer
from linearizability.bench.scale_logs import COPIES, keyed
from linearizability.bench.scale_report import COLUMNS, PANELS, draw, show
from linearizability.targets import TargetError
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.metadata import MetadataResponse
from reference.protocol.records.batch import check_crc, read_header, records_of

ROW: dict[str, Any] = {
    "kind": "partitions",
    "target": "reference",
    "count": 100,
    "created_s": 1.0,
    "served_s": 2.0,
    "replica_kb": 9,
}


def test_small_steps_come_first_and_targets_take_turns() -> None:
    found = [step.name for step in steps(["a", "b"], {"partitions": [300, 100], "start": [7]})]
    assert found == [
        "partitions/a/100",
        "partitions/b/100",
        "partitions/a/300",
        "partitions/b/300",
        "start/a/7",
        "start/b/7",
    ]


def test_rows_are_kept_drawn_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"x": ROW, "y": ROW | {"target": "other", "failed": "TargetError: no"}}
    write_store(tmp_path / "s.json", rows)
    assert read_store(tmp_path / "s.json") == rows and read_store(tmp_path / "none") == {}
    draw(rows.values(), tmp_path / "s.svg")
    assert "<svg" in (tmp_path / "s.svg").read_text()
    show(rows.values())
    assert "TargetError: no" in capsys.readouterr().out


def test_the_folder_of_the_store_is_made_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the run's own folder of results
    store = tmp_path / "new" / "scale.json"

    def run(step: Step, folder: Path, progress: object) -> dict[str, Any]:
        assert store.parent.is_dir()
        return ROW | {"count": step.count}

    monkeypatch.setattr(Step, "run", run)
    options = ["--kind", "partitions", "--partitions", "7", "--against", "", "--store", str(store)]
    done = CliRunner().invoke(app, ["scale", *options])
    assert (done.exit_code, read_store(store)) == (0, {"partitions/reference/7": ROW | {"count": 7}}), done.output


def test_a_store_that_cannot_be_written_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_store(tmp_path / "s.json", {"x": ROW})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_store(tmp_path / "s.json", {})
    assert read_store(tmp_path / "s.json") == {"x": ROW} and [each.name for each in tmp_path.iterdir()] == ["s.json"]


def test_a_target_has_one_colour_in_all_panels(tmp_path: Path) -> None:
    first = {"kind": "partitions", "target": "first", "count": 1, "created_s": 1.0}
    alone = {"kind": "connections", "target": "second", "count": 1, "single_request_cpu_us": 1.0}
    draw([first, first | {"target": "second"}, alone], tmp_path / "s.svg")
    lines = re.findall(r"fill: none; stroke: (#[0-9a-f]{6}); stroke-width: 1.5", (tmp_path / "s.svg").read_text())
    assert Counter(lines) == {"#1f77b4": 1 + 1, "#ff7f0e": 2 + 1}, "a line in each panel, and one in the legend"


def test_partitions_without_a_leader_and_those_not_asked_for_are_left_out() -> None:
    partition = MetadataResponse.MetadataResponsePartition
    found = [partition(partition_index=index, leader_id=leader) for index, leader in ((0, 2), (1, -1), (2, 2), (3, 1))]
    answer = MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="t", partitions=found)])
    assert led_by(answer, {("t", 0), ("t", 1), ("t", 3)}) == {2: [("t", 0)], 1: [("t", 3)]}


def test_a_target_that_is_no_process_of_ours_is_refused(tmp_path: Path) -> None:
    row = Step("start", "addr:127.0.0.1:1", 1).run(tmp_path, lambda text: None)
    assert "a benchmark needs the brokers' processes" in row["failed"]
    with pytest.raises(TargetError):
        open_for_bench("addr:127.0.0.1:1", tmp_path)


def test_a_node_starts_again_with_all_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_S", "SETTLE_S", "LOAD_S", "WARMUP_S"):
        monkeypatch.setattr(scale_cluster, name, 0.1)
    reported: list[str] = []
    row = Step("start", "reference", 3).run(tmp_path, reported.append)
    assert "failed" not in row, row
    assert row["start_after_stop_s"] > 0 and row["start_after_kill_s"] > 0 and row["descriptors"] > 3
    assert reported[-1] == "start/reference/3: start_after_kill" and json.dumps(row)


SMALL = {"groups": 30, "transactional-ids": 30, "producer-ids": 300, "log": 5, "upkeep": 60_000, "connections": 3}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_each_kind_has_the_columns_of_its_table(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_S", "SETTLE_S", "LOAD_S", "WARMUP_S"):
        monkeypatch.setattr(scale_cluster, name, 0.3)
    monkeypatch.setattr(scale_logs, "ALONE_S", 1.0)
    row = Step(kind, "reference", SMALL[kind]).run(tmp_path, lambda text: None)
    assert "failed" not in row, row
    shown = {column for each, column, _ in PANELS if each == kind} | {column for column, _ in COLUMNS[kind]}
    assert shown <= {*row}


def test_every_kind_is_drawn_and_has_a_table() -> None:
    assert {*KINDS} == {*COLUMNS} == {kind for kind, _, _ in PANELS}


def test_each_record_of_the_compacted_log_has_a_key_that_comes_four_times() -> None:
    keys = Counter(record.key for batch in keyed(6_000) for record in records_of(memoryview(batch)))
    assert {*keys.values()} == {COPIES} and len(keys) == 6_000 // COPIES


def test_a_batch_of_another_producer_is_whole() -> None:
    data = memoryview(of_producer(make_batch(1, 10), 7))
    header = read_header(data)
    check_crc(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1_000_007, 0, 0)


def test_a_node_does_not_lose_what_it_was_asked_to_know() -> None:
    with pytest.raises(TargetError, match="UNKNOWN_MEMBER_ID"):
        await_code(lambda: ErrorCode.UNKNOWN_MEMBER_ID)
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    await_code(lambda: codes.pop(0))
    assert not codes


@pytest.mark.slow
def test_a_cluster_loses_a_node_and_gets_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_S", "SETTLE_S", "LOAD_S", "WARMUP_S"):
        monkeypatch.setattr(scale_cluster, name, 0.3)
    row = Step("partitions", "reference", 30).run(tmp_path, lambda text: None)
    assert "failed" not in row, row
    assert {column for kind, column, _ in PANELS if kind == "partitions"} <= {*row}
