"""A history whose marks are missing in part: what they would have explained is not known, and nothing is valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linearizability.history.operations import commit, committed, poll, send
from linearizability.history.recorder import Recorder
from tests.history.judged_histories import judge

SECOND = 1_000_000_000
KILL: dict[str, Any] = {"name": "kill", "injection": 0, "node": 1}
AGAIN = KILL | {"injection": 1}


class Story:
    """Two processes and the nemesis, which is process 0, under one clock."""

    def __init__(self, folder: Path) -> None:
        self.now = 0
        self.nemesis, self.one, self.two = (
            Recorder.open(folder, process=number, run="r", clock=self.tick) for number in range(3)
        )
        self.nemesis.mark("note", text="wave 1")

    def tick(self) -> int:
        self.now += 1_000
        return self.now

    def sends(self, value: int, offset: int) -> None:
        number = self.one.invoke("send", [send("t-0", value)])
        self.one.ok(number, [send("t-0", value, offset=offset)])

    def end(self) -> None:
        for each in (self.nemesis, self.one, self.two):
            each.close()


def a_loss_of_power(story: Story) -> None:
    story.sends(1, 0)
    story.sends(2, 1)
    story.nemesis.mark("excuse", number=1, cause="power-loss", keys=["t-0"], nodes=[1, 2])
    story.sends(3, 2)
    number = story.two.invoke("poll", [poll()])
    story.two.ok(number, [poll({"t-0": [(0, 1), (2, 3)]})])
    story.nemesis.mark("excuse-over", number=1)


def a_second_fault(story: Story) -> None:
    """While it lasts no send succeeds."""
    story.sends(1, 0)
    for mark in (KILL, AGAIN):
        story.nemesis.mark("fault", **mark)
        story.now += 90 * SECOND
        number = story.one.invoke("send", [send("t-0", 2 + mark["injection"])])
        story.now += SECOND
        story.one.info(number)
        story.nemesis.mark("heal", **mark)


def a_coordinator_that_is_cut_off(story: Story) -> None:
    story.sends(1, 0)
    for offset in (0, 1):
        number = story.one.invoke("commit", [commit("g", {"t-0": offset})])
        story.one.ok(number, [commit("g", {"t-0": offset})])
    story.nemesis.mark("fault", **KILL)
    number = story.two.invoke("committed", [committed("g")])
    story.two.ok(number, [committed("g", {"t-0": 0})])
    story.nemesis.mark("heal", **KILL)


DAMAGES: dict[str, Callable[[list[str]], list[str] | None]] = {
    "gone": lambda lines: None,
    "empty": lambda lines: [],
    "no header": lambda lines: lines[1:],
    "header only": lambda lines: lines[:1],
    "cut before the first fault": lambda lines: lines[:2],
    "torn after the first mark": lambda lines: [*lines[:2], lines[2][:20]],
    "cut before its end": lambda lines: lines[:-2],
    "cut after the first heal": lambda lines: lines[:4],
    "a line lost": lambda lines: [*lines[:2], *lines[3:]],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("events", [a_loss_of_power, a_second_fault, a_coordinator_that_is_cut_off])
def test_what_missing_marks_may_explain_is_unknown(
    tmp_path: Path, events: Callable[[Story], None], damage: str
) -> None:
    story = Story(tmp_path)
    events(story)
    story.end()
    path = tmp_path / "history-00000.jsonl"
    whole = judge(tmp_path)
    assert whole.verdict in ("valid", "unknown"), whole.to_json()
    lines = DAMAGES[damage](path.read_text().splitlines(keepends=True))
    if lines is None:
        path.unlink()
    else:
        path.write_text("".join(lines))
    judgement = judge(tmp_path)
    assert judgement.verdict == "unknown", judgement.to_json()
    assert any(str(path) in reason for reason in judgement.reasons), judgement.reasons


def test_a_torn_file_of_a_client_leaves_what_is_there_an_accusation(tmp_path: Path) -> None:
    """Its marks are in another file, which is whole."""
    story = Story(tmp_path)
    a_loss_of_power(story)
    story.end()
    nemesis = tmp_path / "history-00000.jsonl"
    marks = [line for line in nemesis.read_text().splitlines(keepends=True) if '"excuse' not in line]
    renumbered = [json.loads(line) | ({"n": number} if number else {}) for number, line in enumerate(marks)]
    nemesis.write_text("".join(json.dumps(each) + "\n" for each in renumbered))
    client = tmp_path / "history-00001.jsonl"
    client.write_text(client.read_text()[:-5])
    judgement = judge(tmp_path)
    assert judgement.verdict == "invalid", judgement.to_json()
