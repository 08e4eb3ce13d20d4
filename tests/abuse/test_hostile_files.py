"""Result folders, histories, schedules, hunts and adapters' answers that others wrote: names in them run no code in pages made of
them, and create no file outside the given folder; a hunt's plan runs no command that the user has not named or trusted.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from conformance import report
from conformance.results import Run
from linearizability.faults.plan import Plan
from linearizability.faults.schedule import Schedule
from tests.conformance.parrot import parrot
from tests.conformance.test_report import a_run
from tests.targets.test_adapter import adapter
from tidegauge import main

HISTORY = Path(__file__).parents[1] / "history/regressions/kafka-1.1.0-unclean-election"
HOSTILE = "</script></title><img src=x onerror=alert(1)>'\"/../../../escaped"
"""A topic's name, a key or a value: it closes the element of a page that holds it, and climbs out of folders."""
BARE = re.compile(r"<img src=x", re.I)


def command(*arguments: str | Path) -> int:
    """Run the command in this process; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """An invalid history whose run and topic have the hostile name."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    name = json.dumps(HOSTILE)[1:-1]
    for file in HISTORY.iterdir():
        if file.name.endswith(".gz"):
            text = gzip.decompress(file.read_bytes()).decode().replace("hunt-20261122t040943z-3", name)
            (folder / file.name).write_bytes(gzip.compress(text.encode()))
    return folder


def test_names_in_a_history_run_nothing_and_lead_nowhere(hostile: Path, tmp_path: Path) -> None:
    made = tmp_path / "a/b/c/d"
    made.mkdir(parents=True)
    before = {*tmp_path.rglob("*")}
    assert command("history", "check", hostile, "--output", made / "checked") == 1
    command("history", "show", hostile, "--svg", made / "svg", "--page", made / "page.html")
    command("history", "export", hostile, made / "store", "--to", "parquet")
    new = {*tmp_path.rglob("*")} - before
    pages = [each for each in new if each.suffix in (".html", ".svg")]
    assert len(pages) > 2
    assert [each for each in pages if BARE.search(each.read_text())] == []
    assert [each for each in new if made not in each.parents] == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"steps": "x"}', json.dumps({"format": HOSTILE}), "[" * 100_000, '{"a":' * 50_000, "\x00" * 1000],
)
def test_what_is_no_schedule_is_refused_in_words(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(text)
    assert command("replay", file) in (3, 64)
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out


# ---- result folders


def texts(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key or index) of each text in a JSON value."""
    for place, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, str):
            yield value, place
        elif isinstance(each, (dict, list)):
            yield from texts(each)


def test_texts_in_a_stored_run_run_nothing_and_lead_nowhere(tmp_path: Path) -> None:
    """Every text of the stored run that may be any text is hostile."""
    held = json.loads(a_run().model_dump_json(by_alias=True))
    changed = 0
    for holder, place in texts(held):
        kept, holder[place] = holder[place], HOSTILE
        try:
            Run.model_validate(held)
            changed += 1
        except ValidationError:
            holder[place] = kept
    assert changed > 50
    folder = tmp_path / "a/b/c/run"
    folder.mkdir(parents=True)
    (folder / report.JSON_NAME).write_text(json.dumps(held))
    before = {*tmp_path.rglob("*")}
    assert command("report", folder) == 1
    command("compare", folder, folder, "--html", folder / "matrix.html", "--all")
    new = {*tmp_path.rglob("*")} - before
    pages = [each for each in new if each.suffix in (".html", ".svg")]
    assert {"report.html", "matrix.html"} < {each.name for each in pages}
    assert [each for each in pages if BARE.search(each.read_text())] == []
    assert [each for each in new if folder not in each.parents] == []


# ---- adapters, and the brokers behind them


def hostile_adapter(tmp_path: Path, port: int) -> str:
    """The spec of an adapter that starts a node at the port, or with port 0 fails with a hostile message."""
    described = {"contract": 1, "name": HOSTILE, "version": HOSTILE, "hooks": ["logs"], "max_nodes": 1}
    started = {"nodes": [{"id": 1, "host": "127.0.0.1", "port": port}]}
    lines = (
        f"if r['command'] == 'describe': say(id=r['id'], ok={described!r})",
        f"elif r['command'] == 'start' and {port}: say(id=r['id'], ok={started!r})",
        f"elif r['command'] == 'logs': say(id=r['id'], ok={{'paths': [{HOSTILE!r}]}})",
        f"else: say(id=r['id'], error={HOSTILE!r})",
    )
    return adapter(tmp_path, "\n".join(lines))


def hostile_names(request: Any, response: Any, version: int) -> None:
    response.topics = [type(response).CreatableTopicResult(name=HOSTILE, error_code=17, error_message=HOSTILE)]


@pytest.mark.parametrize("starts", [True, False])
def test_what_an_adapter_and_its_broker_answer_runs_nothing(tmp_path: Path, starts: bool) -> None:
    results = tmp_path / "a/b/c/results"
    results.mkdir(parents=True)
    with parrot({"CreateTopics": hostile_names}) as bird:
        spec = hostile_adapter(tmp_path, bird.port if starts else 0)
        before = {*tmp_path.rglob("*")}
        command("run", "TOP-01", "--target", spec, "--results", results, "--backend", "plain")
    new = {*tmp_path.rglob("*")} - before
    pages = [each for each in new if each.suffix in (".html", ".svg")]
    assert "report.html" in {each.name for each in pages}
    assert [each for each in pages if BARE.search(each.read_text())] == []
    assert "onerror" in next(each for each in new if each.name == "report.json").read_text()
    assert [each for each in new if results not in each.parents] == []


# ---- hunts


@pytest.mark.parametrize(
    "risk",
    [
        {"target": "exec:{python} {script}"},
        {"target": "addr:192.0.2.1:9092"},
        {"target": "reference:1", "image": "of-another"},
        {"target": "reference:1", "client_config": "/etc/passwd"},
        {"target": "reference:1", "config": {"log.dirs": "{marker}"}},
    ],
)
def test_a_stored_hunt_runs_nothing_that_it_names(
    tmp_path: Path, risk: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    marker, script = tmp_path / "marker", tmp_path / "script.py"
    script.write_text(f"open({str(marker)!r}, 'w')\n")
    text = json.dumps(risk).replace("{python}", sys.executable).replace("{script}", str(script))
    plan = Plan.model_validate({"minutes": 0.01, "seed": 1, **json.loads(text.replace("{marker}", str(marker)))})
    folder = tmp_path / "hunt"
    folder.mkdir()
    (folder / "plan.json").write_text(plan.model_dump_json())
    Schedule(seed=1, seconds=0.1, waves=[]).save(folder / "schedule.json")
    assert command("replay", folder, "--results", tmp_path / "results") == 64
    assert "--trust" in capsys.readouterr().err
    assert not marker.exists() and not (tmp_path / "results").exists()
    if risk["target"].startswith("exec:"):
        command("replay", folder, "--results", tmp_path / "results", "--trust", "--engine", "local")
        assert marker.exists(), "it would have run it"
