"""Measures the explorer's frames in Chromium with 20,000 events: `python -m tests.explorer.frames [--record]`.

Each frame is painted at once and read back, so that painting which the canvas defers counts too. `cpu_ms` is the CPU time of all
of Chromium's threads for one frame, which other load of the machine does not lengthen. The other numbers are wall-clock times.
`--record` stores the numbers in frames.json.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from linearizability.simulation.drawing import draw
from linearizability.simulation.explorer import explorer
from linearizability.simulation.fuzzing import run_planted
from tests.browser import Browser

STORE = Path(__file__).with_name("frames.json")
MANY = 20_000
FRAMES = 60
STEP_US = 5_000
ACTIONS = {
    "scrub": "go((n * 397) % shown.length)",
    "play": "go(n)",
    "step while zoomed in": "if (!n) { zoom(.01, now()); } go(n)",
    "zoom": "n % 2 ? zoom(1.25, (from + to) / 2) : zoom(.8, (from + to) / 2)",
    "pan": "{ const by_us = (to - from) / 500; from += by_us; to += by_us; draw(); }",
    "follow a record": "by('offset').value = n; select()",
}
"""A reader's action -> the script of its n-th frame."""
FRAME = """(() => {
  const whole = [from, to], times = [], pen = by("picture").getContext("2d");
  by("offset").value = ""; select();
  for (let n = 0; n < FRAMES; n++) {
    const began = performance.now();
    ACTION;
    paint(); pen.getImageData(0, 0, 1, 1); document.body.offsetHeight;
    times.push(performance.now() - began);
  }
  [from, to] = whole;
  return times;
})()"""


def page_of_many(path: Path) -> None:
    """A failed run's page, its events repeated until there are 20,000."""
    outcome, trace = run_planted(draw(0, "acks-all-as-one", 3), keep_trace=True)
    events = list(trace.events)
    many = itertools.islice(itertools.cycle(events), MANY)
    trace.events = [(number * STEP_US, *event[1:]) for number, event in enumerate(many)]
    path.write_text(explorer(outcome, trace))


def script_of(action: str) -> str:
    """A script that returns the milliseconds of each frame of an action."""
    return FRAME.replace("FRAMES", str(FRAMES)).replace("ACTION", ACTIONS[action])


def frame_ms(browser: Browser, action: str) -> list[float]:
    """Milliseconds of each frame of an action, by the open page."""
    script = script_of(action)
    browser.evaluate(script)
    return browser.evaluate(script)


def cpu_ms(root: int) -> float:
    """CPU time of a process and its descendants until now."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    total = 0
    for process in family:
        for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(thread.read_text().split()[0])
    return total / 1e6


def measure() -> dict[str, Any]:
    """CPU time, least, median and 95th percentile of each action's frames."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "many.html"
        page_of_many(page)
        with Browser(Path(folder) / "profile") as browser:
            browser.open(f"file://{page}")
            browser.evaluate("window.loaded")
            for action in ACTIONS:
                script = script_of(action)
                browser.evaluate(script)
                began = cpu_ms(browser.process.pid)
                times = sorted(browser.evaluate(script))
                found[action] = {
                    "cpu_ms": round((cpu_ms(browser.process.pid) - began) / FRAMES, 1),
                    "least_ms": round(times[0], 1),
                    "median_ms": round(statistics.median(times), 1),
                    "p95_ms": round(times[int(0.95 * len(times))], 1),
                }
    chromium = subprocess.run(["chromium", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    about = {"date": time.strftime("%Y-%m-%d"), "events": MANY, "frames": FRAMES, "browser": chromium, "width": 1280}
    return about | {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2), "actions": found}


if __name__ == "__main__":
    measured = measure()
    print(json.dumps(measured, indent=1))
    if "--record" in sys.argv[1:]:
        STORE.write_text(json.dumps(measured, indent=1) + "\n")
