"""The pictures of the tutorial, drawn again from runs as its chapters show them: `python -m tests.tools.pictures`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.browser import Browser

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
MUTANT = "exec:python -m linearizability.mutants adapter acknowledged-without-append"
FAILURE = "results/latest/failure-1"
STEPS = (
    (("run", "--target", MUTANT, "ACK-01", "ACK-02"), "results/latest/report.html", "report.png", 1000),
    (
        ("fuzz", "--nodes", "3", "--mutant", "kip-101-loss", "--by-history", "--seed", "46", "--schedules", "1"),
        f"{FAILURE}/explorer.html", "run.png", 1100,
    ),
    (("history", "check", f"{FAILURE}/history", "--output", "verdict"), "verdict/report.html", "verdict.png", 1000),
    (("replay", f"{FAILURE}/schedule.json"), "results/latest/explorer.html", "replay.png", 1100),
)  # fmt: skip
"""Words of a command, the page that it writes, the picture, and its width in pixels."""
HIGHEST = 1100
FOUND = 1
"""The exit code of each command: it finds the bug."""


def draw(browser: Browser, page: Path, width: int, picture: Path) -> None:
    """Store a picture of the top of a page, at most HIGHEST pixels high."""
    browser.open(page.resolve().as_uri(), width=width)
    browser.evaluate("window.loaded")
    high = min(browser.evaluate("document.body.scrollHeight"), HIGHEST)
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=high, deviceScaleFactor=1, mobile=False)
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    browser.screenshot(picture)
    Image.open(picture).quantize().save(picture, optimize=True)  # a quarter of the bytes


def main() -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Browser(folder / "profile") as browser:
            for words, page, picture, width in STEPS:
                command = [sys.executable, "-m", "tidegauge", "--quiet", *words]
                done = subprocess.run(command, cwd=folder, env=environment, check=False)
                assert done.returncode == FOUND, f"{command} finds nothing"
                draw(browser, folder / page, width, TUTORIAL / picture)
                print(TUTORIAL / picture)


if __name__ == "__main__":
    main()
