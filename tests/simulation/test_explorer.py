"""The explorer in a browser: it plays a failed run, has no serious finding of axe-core, and stays smooth with 20,000 events."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.explorer import EXPLORER_FILE, explorer
from linearizability.simulation.fuzzing import keep_run, run_planted
from linearizability.simulation.sampling import DOWN, NODE
from tests.browser import Browser, needs_chromium

MANY = 20_000
FRAMES = 30


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


def test_samples_are_what_the_nodes_had():
    _, trace = run_planted(draw(0, "acks-all-as-one", 3), keep_trace=True)
    replicas = [one for one in trace.samples if one.partition != NODE]
    assert {one.node for one in replicas} == {"node 1", "node 2", "node 3"}
    assert all(one.high_watermark <= one.log_end for one in replicas if one.high_watermark >= 0)
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
    browser.evaluate("document.getElementById('back').click()")
    assert browser.evaluate("document.querySelector('[aria-current]').textContent") != last
    rows = browser.evaluate(
        "[...document.querySelectorAll('#state tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert [row[0] for row in rows] == ["node 1", "node 2", "node 3"]
    leader = [row for row in rows if row[1] == "leader"]
    assert leader and int(leader[0][3]) >= int(leader[0][4]) >= 0


@needs_chromium
def test_following_a_text_leaves_faults_and_what_has_it(browser, failed):
    opened(browser, failed)
    browser.evaluate(
        "(() => { const box = document.getElementById('follow'); box.value = 'Produce'; box.dispatchEvent(new Event('input')); })()"
    )
    lines = browser.evaluate(
        "[...document.querySelectorAll('#list button')].map((one) => [one.textContent, one.className.includes('fault')])"
    )
    assert lines and all(is_fault or "Produce" in text for text, is_fault in lines)


@pytest.mark.slow
@needs_chromium
def test_twenty_thousand_events_are_as_smooth_as_their_pixels(browser, tmp_path):
    """A ratio within one run: a frame of many events may take no longer than a few frames of a hundredth of them."""
    outcome, trace = run_planted(draw(0, "acks-all-as-one", 3), keep_trace=True)
    step, events = 5_000, list(trace.events)
    many = itertools.islice(itertools.cycle(events), MANY)
    trace.events = [(number * step, *event[1:]) for number, event in enumerate(many)]
    page = tmp_path / "many.html"
    page.write_text(explorer(outcome, trace))
    opened(browser, page)
    assert browser.evaluate("events.length") == MANY
    frame = f"(() => {{ const began = performance.now(); for (let n = 0; n < {FRAMES}; n++) {{ go(n * 7); paint(); }} return (performance.now() - began) / {FRAMES}; }})()"
    browser.evaluate(frame)
    many_ms = browser.evaluate(frame)
    browser.evaluate("to = from + (to - from) / 100; paint()")
    few_ms = browser.evaluate(frame)
    print(f"a frame of {MANY} events: {many_ms:.1f} ms; of a hundredth: {few_ms:.1f} ms")
    assert many_ms < 25 * few_ms + 5
