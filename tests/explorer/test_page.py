"""The explorer in a browser: it plays failed runs, counterexamples and histories, and follows a record in each.

It has no serious finding of axe-core, and stays smooth with 20,000 events.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.explorer.history import run_of as of_history
from linearizability.explorer.page import DOWN, EXPLORER_FILE, NODE
from linearizability.explorer.page import page as explorer_page
from linearizability.history.commands import app as history
from linearizability.pipeline.engine import check
from linearizability.simulation.drawing import draw
from linearizability.simulation.fuzzing import keep_run, run_planted
from spec.checker import TraceStep
from spec.explorer import run_of
from tests.browser import Browser, needs_chromium
from tests.explorer.frames import ACTIONS, MANY, STORE, frame_ms, page_of_many

REPOSITORY = Path(__file__).resolve().parents[2]
HISTORY = REPOSITORY / "tests" / "history" / "regressions" / "reference-high-watermark-truncation"


@pytest.fixture(scope="module")
def failed(tmp_path_factory) -> Path:
    """The folder of a run in which a leader acknowledges before all in-sync replicas have a record."""
    folder = tmp_path_factory.mktemp("failed")
    assert keep_run(draw(0, "acks-all-as-one", 3), folder).verdict == "invalid"
    return folder / EXPLORER_FILE


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def opened(browser: Browser, page: Path, **how) -> Browser:
    browser.open(f"file://{page}", **how)
    browser.evaluate("window.loaded")
    return browser


def test_samples_have_the_replicas_of_each_node():
    _, trace = run_planted(draw(0, "acks-all-as-one", 3), keep_trace=True)
    replicas = [one for one in trace.samples if one.partition != NODE]
    assert {one.node for one in replicas} == {"node 1", "node 2", "node 3"}
    known = [one for one in replicas if one.high_watermark >= 0]
    assert known and all(one.high_watermark <= one.log_end for one in known)
    assert [one.event for one in trace.samples] == sorted(one.event for one in trace.samples)
    assert any(one.role == "leader" for one in replicas) and any(one.role == DOWN for one in trace.samples)


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(390, False), (820, True), (1280, False)])
def test_everyone_can_use_it_at_every_width(browser, failed, width, dark):
    opened(browser, failed, width=width, dark=dark)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.serious() == []


@needs_chromium
def test_it_begins_at_the_violation_and_steps(browser, failed):
    opened(browser, failed)
    assert "acknowledged-before-commit" in browser.evaluate("document.getElementById('seen').textContent")
    last = browser.evaluate("document.querySelector('[aria-current]').textContent")
    assert "VIOLATION" in last
    first, begin, end = browser.evaluate("[events[0][0], from, to]")
    assert first < begin < end, "the start of the cluster, in which nothing is known of the partition, is not shown"
    browser.evaluate("document.getElementById('back').click()")
    assert browser.evaluate("document.querySelector('[aria-current]').textContent") != last
    rows = browser.evaluate(
        "[...document.querySelectorAll('#state tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert [row[0] for row in rows] == ["node 1", "node 2", "node 3"]
    leader = [row for row in rows if row[1] == "leader"]
    assert leader and int(leader[0][3]) >= int(leader[0][4]) >= 0


@needs_chromium
def test_following_a_text_leaves_its_events_and_faults(browser, failed):
    opened(browser, failed)
    unfiltered = browser.evaluate("document.querySelectorAll('#list button').length")
    browser.evaluate(
        "(() => { const box = document.getElementById('follow'); box.value = 'Produce'; box.dispatchEvent(new Event('input')); })()"
    )
    lines = browser.evaluate(
        "[...document.querySelectorAll('#list button')].map((one) => [one.textContent, one.className.includes('fault')])"
    )
    assert any("Produce" in text for text, _ in lines)
    assert all(is_fault or "Produce" in text for text, is_fault in lines) and len(lines) < unfiltered


@pytest.mark.slow
@needs_chromium
def test_twenty_thousand_events_are_as_smooth_as_their_pixels(browser, tmp_path):
    """A ratio within one run: a frame of many events may take no longer than a few frames of a hundredth of them."""
    page = tmp_path / "many.html"
    page_of_many(page)
    opened(browser, page)
    assert browser.evaluate("events.length") == MANY
    for action in ACTIONS:
        many_ms = min(frame_ms(browser, action))
        browser.evaluate("window.whole = [from, to]; to = from + (to - from) / 100")
        few_ms = min(frame_ms(browser, action))
        browser.evaluate("[from, to] = window.whole")
        print(f"{action}: a frame of {MANY} events {many_ms:.1f} ms, of a hundredth {few_ms:.1f} ms")
        assert many_ms < 25 * few_ms + 5, action


def test_the_stored_frames_are_within_one_of_a_screen():
    """Sixty pictures a second, as measured by `python -m tests.explorer.frames --record`."""
    stored = json.loads(STORE.read_text())
    assert (stored["events"], set(stored["actions"])) == (MANY, set(ACTIONS))
    assert {action: each["cpu_ms"] for action, each in stored["actions"].items() if each["cpu_ms"] >= 16} == {}


@needs_chromium
def test_a_picture_that_is_kept_is_the_one_that_is_painted_again(browser, failed):
    """Scrubbing copies the picture: what it copies is what the page would paint."""
    opened(browser, failed)
    pixels = "(() => { const one = by('picture'); return one.toDataURL(); })()"
    steps = [
        "go(3)",
        "zoom(.5, now())",
        "go(9)",
        "by('chatter').checked = true; select()",
        "by('offset').value = 0; select()",
    ]
    for step in steps:
        browser.evaluate(f"{step}; paint()")
        kept = browser.evaluate(pixels)
        browser.evaluate("painted = ''; paint()")
        assert browser.evaluate(pixels) == kept, step
    browser.evaluate("go(0); paint()")
    assert browser.evaluate(pixels) != kept


def followed(browser: Browser, partition: str = "", offset: int | None = None) -> list[str]:
    """The page's lines about the record of this offset; without an offset, about the record that it follows at first."""
    if offset is not None:
        browser.evaluate(f"by('part').value = '{partition}'; by('offset').value = {offset}; select()")
    return browser.evaluate("[...document.querySelectorAll('#path button')].map((one) => one.textContent)")


@needs_chromium
def test_a_record_is_followed_from_its_send_to_its_loss(browser, tmp_path):
    """A follower that becomes leader truncates to its high watermark (KIP-101): a record that clients read is lost."""
    assert keep_run(draw(0, "kip-101-loss", 3), tmp_path).verdict == "invalid"
    opened(browser, tmp_path / EXPLORER_FILE)
    way = [line.partition("ms  ")[2] for line in followed(browser)]
    stages = ["client 4  send", "node 1  has it", "node 3  has it", "node 1  shows it below", "client 4  ok: send"]
    places = [next(n for n, line in enumerate(way) if line.startswith(stage)) for stage in stages]
    assert places == sorted(places)
    assert way[-1] == "node 3  no longer has it"
    accused = browser.evaluate("[...document.querySelectorAll('#state .bad')].map((row) => row.cells[0].textContent)")
    assert accused == ["node 3"], "the violation names it"
    browser.evaluate("document.querySelector('#path li:last-child button').click()")
    assert "VIOLATION" in browser.evaluate("document.querySelector('[aria-current]').textContent")
    assert followed(browser, "orders0-0", 100_000) == []


@needs_chromium
def test_a_history_is_shown_with_its_witnesses(browser, tmp_path):
    page = tmp_path / "history.html"
    shown = CliRunner().invoke(history, ["show", str(HISTORY), "--page", str(page)])
    assert shown.exit_code == 0, shown.output
    opened(browser, page)
    assert browser.serious() == []
    found = browser.evaluate("document.getElementById('seen').textContent")
    assert found.startswith("inconsistent-offsets") and "offset 239 holds" in found
    sends = [line for line in followed(browser) if " send " in line]
    assert len(sends) == 2 and all("@239" in line for line in sends)
    witnesses = browser.evaluate(
        "data.operations.filter((one) => one[6] && one[4].startsWith('send')).map((one) => one[4])"
    )
    assert any("4724464025674@239" in text for text in witnesses)
    assert browser.evaluate("data.operations.some((one) => !one[6])")


@needs_chromium
@pytest.mark.parametrize("width", [400, 900, 1400])
def test_the_report_of_a_history_can_be_read_at_every_width(browser, width, tmp_path):
    checked = CliRunner().invoke(history, ["check", str(HISTORY), "--output", str(tmp_path)])
    assert "invalid" in checked.output, checked.output
    opened(browser, tmp_path / "report.html", width=width, dark=width == 900)
    assert browser.serious() == []
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.evaluate("document.querySelector('meta[name=viewport]').content").startswith("width=device-width")


@needs_chromium
def test_a_counterexample_is_shown_step_by_step(browser, tmp_path):
    """Of two brokers the second loses the record when it becomes a follower, and the first commits it."""

    def state(logs: dict[str, list[int]], committed: int, **step: object) -> dict[str, object]:
        known = {"leader": "b1", "leaderEpoch": 1, "isr": ("b1", "b2")}
        return {
            "log": {name: [{"epoch": epoch, "number": 1} for epoch in epochs] for name, epochs in logs.items()},
            "metadata": dict.fromkeys(logs, known), "status": dict.fromkeys(logs, "running"),
            "highWatermark": {"b1": committed, "b2": 0}, "step": step,
        }  # fmt: skip

    states = [
        state({"b1": [], "b2": []}, 0),
        state({"b1": [1], "b2": []}, 0, action="Produce", leader="b1"),
        state({"b1": [1], "b2": [1]}, 0, action="AppendFetched", leader="b1", follower="b2"),
        state({"b1": [1], "b2": []}, 0, action="BecomeFollower", broker="b2"),
        state({"b1": [1], "b2": []}, 1, action="AdvanceHighWatermark", leader="b1"),
    ]
    trace = [TraceStep(number, str(each["step"]), each) for number, each in enumerate(states, 1)]
    page = tmp_path / "counterexample.html"
    page.write_text(explorer_page(run_of(trace, "a switch breaks Durability", "Durability", "a story")))
    opened(browser, page)
    assert browser.evaluate("document.getElementById('seen').textContent") == "Durability: a story"
    assert followed(browser) == [
        "step 1  b1  has it, written in leader epoch 1",
        "step 2  b2  has it, written in leader epoch 1",
        "step 3  b2  no longer has it",
        "step 4  b1  shows it below the high watermark",
    ]


def test_nodes_of_a_hunt_have_rows_where_they_lead_or_are_down():
    judgement = next(iter(check([HISTORY], engine="local")))
    history = judgement.history
    assert history is not None
    begin = history.marks[-1]["time"] + 1
    for number, kind in enumerate(("fault", "heal")):
        history.marks.append({"type": "mark", "f": kind, "name": "kill", "node": 2, "time": begin + number * 1_000_000})
    for number, leader in enumerate((3, 1)):
        note = {"f": "note", "text": "a leader", "partition": 1, "leader": leader, "epoch": 3 + number}
        history.marks.append({"type": "mark", "time": begin + (2 + number) * 1_000_000, **note})
    shown = of_history(history, judgement)
    assert shown.names[: shown.nodes] == ["node 1", "node 2", "node 3"]
    of_node = [each for each in shown.samples if (each.node, each.partition) == ("node 2", NODE)]
    assert [(each.role, shown.events[each.event - 1].text) for each in of_node[-2:]] == [
        (DOWN, "fault kill 2"),
        ("up", "heal kill 2"),
    ]
    led = [f"leader {each.node[5:]}, epoch {each.leader_epoch}" for each in shown.samples if each.role == "leader"]
    assert led == ["leader 3, epoch 3", "leader 1, epoch 4"], "of the one partition that this history holds"
