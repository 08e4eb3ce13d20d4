"""Hunts from beginning to end, on real brokers; their stored histories can be judged again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from linearizability.faults.replay import StoredHunt
from tests.waiting import await_true

REPOSITORY = Path(__file__).parents[2]


def tidegauge(*arguments: str, results: Path, timeout_s: float = 600) -> tuple[int, dict]:
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", *arguments, "--results", str(results), "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.stdout.strip(), done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def hunted(tmp_path_factory) -> tuple[int, dict]:
    return tidegauge(
        "hunt",
        "--target",
        "reference:1",
        "--minutes",
        "0.3",
        "--seed",
        "4",
        "--faults",
        "kill,pause,stop",
        results=tmp_path_factory.mktemp("results"),
    )


@pytest.mark.spark
def test_a_hunt_on_the_reference_is_valid_by_both_engines(hunted):
    code, summary = hunted
    assert (code, summary["verdict"], summary["engines"]) == (0, "valid", ["local", "spark"]), summary
    assert summary["acknowledged"] > 500 and summary["read"] > summary["acknowledged"]
    assert sum(summary["faults"].values()) >= 2
    assert not summary["interrupted"]


@pytest.mark.spark
def test_its_folder_holds_all_that_is_needed(hunted):
    _, summary = hunted
    folder = Path(summary["folder"])
    names = {path.name for path in folder.iterdir()}
    assert {"plan.json", "schedule.json", "history", "clients", "verdict.json", "summary.json", "target"} <= names
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert (folder / "target" / "node-1" / "node.log").stat().st_size > 0
    assert not (folder / "target" / "node-1" / "data").exists()
    stored = StoredHunt.load(folder)
    assert stored.plan.seed == 4 and stored.schedules[0].waves


@pytest.mark.spark
def test_the_stored_history_is_judged_again(hunted):
    _, summary = hunted
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", "replay", "--judge", summary["folder"], "--engine", "local", "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    again = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, again["verdict"], again["facts"]) == (0, "valid", summary["facts"])
    assert again["anomalies"] == summary["anomalies"]


@pytest.mark.spark
def test_a_record_taken_from_the_stored_history_is_a_lost_write(hunted):
    """The verdict rests on the history: without the reads of one acknowledged record it is invalid."""
    folder = Path(hunted[1]["folder"])
    history = sorted((folder / "history").glob("history-*.jsonl"))
    victim = next(
        json.loads(line)["mops"][0]["value"] for line in history[1].read_text().splitlines() if '"type":"ok"' in line
    )
    for path in history:
        lines = path.read_text().splitlines()
        path.write_text("\n".join(_without(line, victim) for line in lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", "replay", "--judge", str(folder), "--engine", "local", "--json", "--open"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"BROWSER": "true"},
    )
    again = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1 and again["anomalies"]["lost-write"] == 1, again
    assert ": invalid</title>" in (folder / "explorer.html").read_text()


def _without(line: str, victim: int) -> str:
    event = json.loads(line)
    if event.get("f") != "poll" or event.get("type") != "ok":
        return line
    for mop in event["mops"]:
        for key, records in mop.get("records", {}).items():
            mop["records"][key] = [record for record in records if record[1] != victim]
    return json.dumps(event)


@pytest.mark.kafka
@pytest.mark.sampled(days=7)
def test_a_hunt_on_apache_kafka_is_valid(tmp_path):
    code, summary = tidegauge(
        "hunt",
        "--target",
        "kafka:4.3.1",
        "--minutes",
        "0.4",
        "--seed",
        "5",
        "--faults",
        "kill,stop",
        "--engine",
        "local",
        results=tmp_path,
    )
    assert (code, summary["verdict"]) == (0, "valid"), summary
    assert summary["acknowledged"] > 200


def test_an_interrupted_hunt_leaves_a_judged_folder_and_no_process(tmp_path):
    command = [
        sys.executable, "-m", "tidegauge", "hunt", "--target", "reference:1", "--minutes", "5", "--seed", "6",
        "--faults", "none", "--results", str(tmp_path), "--json",
    ]  # fmt: skip
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if " s: " in line:
                break
        os.kill(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=120)
    summary = json.loads(out.splitlines()[-1])
    assert summary["interrupted"] and summary["verdict"] == "unknown" and child.returncode == 2, summary
    assert "interrupted before the end of the plan; what was recorded until then is valid" in summary["reasons"]
    await_true(lambda: not started_in(tmp_path), lambda: f"the end of {started_in(tmp_path)}")


def started_in(folder: Path) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*") if _mentions(path, str(folder))]


def _mentions(process: Path, text: str) -> bool:
    try:
        return text.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_a_target_that_does_not_start_is_an_engine_error(tmp_path):
    code, summary = tidegauge("hunt", "--target", "addr:127.0.0.1:1", "--minutes", "0.1", results=tmp_path)
    assert (code, summary["verdict"]) == (3, "error")
    assert "does not answer" in summary["error"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--target", "nothing"], "is no target"),
        (["--target", "reference:1", "--faults", "meteor"], "'meteor' is none of"),
        (["--target", "reference:1", "--config", "a"], "is not NAME=VALUE"),
        (["--target", "reference:1", "--minutes", "0"], "minutes"),
    ],
)
def test_wrong_usage_exits_64(arguments, reason, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", "hunt", *arguments, "--results", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 64 and reason in done.stderr, done.stderr
