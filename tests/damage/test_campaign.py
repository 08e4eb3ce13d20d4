"""Damaged folders: a seeded share of the campaign, damages that were once silent, and verdicts on missing records."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from linearizability.bench.commands import app
from linearizability.damage import reference as own
from linearizability.damage.content import Observation, observe
from linearizability.damage.folder import Folder, kind_of
from linearizability.damage.trials import CLEAN, FAILURES, KILLED, Ground, Verdict, ground_of, judge, reference, run
from reference.storage.checkpoints import text_of_uuid
from reference.storage.segment_checksums import SEGMENT_CHECKSUMS

TRIALS = 25
"""Trials of each end; `tidegauge bench damage` runs many more."""
FIRST = 1_000_000
"""Greater than every trial number of the stored campaign."""


@cache
def ground(end: str) -> Ground:
    return ground_of(reference(), end)


@pytest.mark.parametrize("end", [CLEAN, KILLED])
def test_no_damage_makes_a_start_serve_silently_less(end: str) -> None:
    trials = [run(reference(), ground(end), end, FIRST + number) for number in range(TRIALS)]
    assert [trial for trial in trials if trial.verdict in FAILURES] == []
    assert {trial.verdict for trial in trials} >= {Verdict.RIGHT, Verdict.REFUSED}


@pytest.mark.parametrize("end", [CLEAN, KILLED])
def test_a_folder_has_every_kind_of_file(end: str) -> None:
    """Trials damage only kinds of files that exist here. Only the lock file has no kind."""
    kinds = set(ground(end).kinds)
    assert {
        ".log",
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    } <= kinds
    assert {"metadata .log", "metadata snapshot", "metadata quorum-state", "meta.properties"} <= kinds
    assert {path for path in ground(end).folder if not kind_of(path)} <= {".lock"}


def outcome(folder: Folder, end: str) -> tuple[Verdict | str, str]:
    """The verdict on a folder, or why its start is refused."""
    try:
        started = own.start(folder)
    except Exception as error:
        return "refused", str(error)
    return judge(ground(end).expected, observe(started.ask, ground(end).producer, own.NOW), started.said)


def without(*names: str) -> Callable[[Folder], Folder]:
    return lambda folder: {path: data for path, data in folder.items() if path not in names}


def replaced(name: str, change: Callable[[bytes], bytes]) -> Callable[[Folder], Folder]:
    return lambda folder: folder | {name: change(folder[name])}


def flipped(byte: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:byte] + bytes([data[byte] ^ 2]) + data[byte + 1 :]


LOG, METADATA = "plain-0/00000000000000000054.log", "__cluster_metadata-0"


@pytest.mark.parametrize(
    ("damage", "end", "expected"),
    [
        (without(LOG), CLEAN, "plain-0"),
        (without(LOG), KILLED, "plain-0"),
        (without(f"{METADATA}/00000000000000000000.log"), CLEAN, METADATA),
        (without(f"{METADATA}/00000000000000000000.log"), KILLED, METADATA),
        (lambda folder: {path: data for path, data in folder.items() if METADATA not in path}, CLEAN, METADATA),
        (lambda folder: {path: data for path, data in folder.items() if METADATA not in path}, KILLED, METADATA),
        (lambda folder: {path: data for path, data in folder.items() if "plain-0/" not in path}, KILLED, "plain-0"),
        (replaced(f"{METADATA}/partition.metadata", flipped(30)), CLEAN, METADATA),
        (replaced(f"{METADATA}/partition.metadata", flipped(30)), KILLED, METADATA),
    ],
)  # fmt: skip
def test_a_missing_or_replaced_file_is_refused_by_name(
    damage: Callable[[Folder], Folder], end: str, expected: str
) -> None:
    verdict, why = outcome(damage(ground(end).folder), end)
    assert verdict in ("refused", Verdict.REFUSED)
    assert expected in why


@pytest.mark.parametrize("end", [CLEAN, KILLED])
@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: folder | {"plain-1/leader-epoch-checkpoint": b""},  # as Kafka leaves it without records
        replaced("plain-0/leader-epoch-checkpoint", lambda _: b""),
        replaced("plain-0/leader-epoch-checkpoint", lambda _: b"rubbish"),
        replaced("transactions-0/00000000000000000000.txnindex", lambda _: b""),
        replaced("plain-0/00000000000000000000.index", lambda data: data[:4] * 2 + data[8:]),
        replaced("plain-0/00000000000000000000.timeindex", lambda data: data[:12] + bytes(3) + data[15:]),
    ],
)
def test_a_file_is_rebuilt_from_the_log(damage: Callable[[Folder], Folder], end: str) -> None:
    damaged = damage(ground(end).folder)
    assert damaged != ground(end).folder
    assert outcome(damaged, end)[0] is Verdict.RIGHT


def test_a_log_of_another_topic_id_is_kept_and_one_that_cannot_be_opened_leaves_the_others_served() -> None:
    other = f"version: 0\ntopic_id: {text_of_uuid(UUID(int=1 << 100))}".encode()
    unproven = {path: data for path, data in ground(KILLED).folder.items() if path != SEGMENT_CHECKSUMS}
    started = own.start(unproven | {"plain-0/partition.metadata": other})
    kept = [name for name in started.disk.list_folder(own.HOME) if name.endswith("-stray")]
    assert len(kept) == 1 and kept[0].startswith("plain-0.")
    assert any(name.endswith(".log") for name in started.disk.list_folder(own.HOME / kept[0]))
    started = own.start(ground(KILLED).folder | {"plain-0/partition.metadata": b"rubbish"})
    seen = observe(started.ask, ground(KILLED).producer, own.NOW)
    assert seen["end of plain-0"] == "error KAFKA_STORAGE_ERROR(56)"
    assert seen["end of plain-1"] == 0 and seen["end of deleted-0"] == 240


def test_the_judge_sees_missing_records_and_warnings_about_them() -> None:
    expected: Observation = {"end of t-0": 5, "records of t-0": [(0, b"a"), (1, b"b")]}
    less = expected | {"records of t-0": [(0, b"a")]}
    assert judge(expected, expected, [])[0] is Verdict.RIGHT
    assert judge(expected, less, [])[0] is Verdict.LESS
    assert judge(expected, less, [("info", "t-0: cut")])[0] is Verdict.LESS
    assert judge(expected, less, [("warning", "t-0: cut")])[0] is Verdict.REPORTED
    assert judge(expected, expected | {"end of t-0": "error 56"}, [])[0] is Verdict.UNNAMED
    assert judge(expected, expected | {"end of t-0": "error 56"}, [("error", "t-0: damaged")])[0] is Verdict.REFUSED


def test_a_campaign_resumes_where_it_was_interrupted(tmp_path: Path) -> None:
    store = tmp_path / "results.json"
    for count in ("2", "3"):
        done = CliRunner().invoke(app, ["damage", "--trials", count, "--resume", "--store", str(store), "--json"])
        assert done.exit_code == 0, done.output
    assert '"run": {\n   "clean": 3,\n   "killed": 3\n  }' in store.read_text()
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["trials"], summary["failed"], summary["interrupted"]) == (6, 0, False)
