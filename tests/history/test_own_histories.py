"""Histories that users record: the example of the README is true, and runs without a name have those of their folders."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.history import commands
from linearizability.history.operations import send
from linearizability.history.reader import sources_of
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import apart

README = Path(commands.__file__).with_name("README.md")


def checked(*arguments: str) -> tuple[int, list[dict]]:
    done = CliRunner().invoke(commands.app, ["check", *arguments, "--json"], standalone_mode=False)
    return done.return_value, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_example_of_the_readme_loses_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    exec(compile(example, str(README), "exec"), {})
    code, (found, _) = checked("my-run")
    assert (code, found["id"], found["verdict"], found["anomalies"]) == (1, "my-run", "invalid", {"lost-write": 1})


def test_runs_without_a_name_have_those_of_their_folders(tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two" / "history"]
    for home in homes:
        with Recorder.open(home, process=1) as producer:
            producer.ok(producer.invoke("send", [send("orders-0", 1)]), [send("orders-0", 1, offset=0)])
    code, (one, two, _) = checked(*map(str, homes))
    assert (code, one["id"], two["id"]) == (2, "one", "two")
    large, _ = apart(sources_of(homes), "spark")
    assert [run.name for run in large] == ["one", "two"]


def test_a_folder_of_runs_names_them(tmp_path: Path) -> None:
    for number in range(3):
        Recorder.open(tmp_path / f"run-{number}", process=1).close()
    code, (found, _) = checked(str(tmp_path))
    assert code == 2
    assert found["reasons"] == [f"{tmp_path}: holds no history-*.jsonl; its folders do: '{tmp_path}/*' names 3 of them"]
    code, found = checked(f"{tmp_path}/*")
    assert len(found) == 4


def test_a_damaged_line_has_one_number(tmp_path: Path) -> None:
    with Recorder.open(tmp_path / "run", process=1) as producer:
        for value in range(2):
            producer.ok(producer.invoke("send", [send("orders-0", value)]), [send("orders-0", value, offset=value)])
    file = tmp_path / "run" / "history-00001.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], lines[2][:-1], *lines[3:]]) + "\n")
    code, (found, _) = checked(str(tmp_path / "run"))
    assert (code, found["reasons"][0]) == (2, f"{file}:3: EOF while parsing an object")
