"""A headless Chromium, driven over its debugging pipe, and axe-core, which finds what people with disabilities cannot use."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

import pytest

from docs.site.npm import npm_file

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: apt-get install chromium")
AXE = ("axe-core", "4.11.0", "39bed7d72308f6d620789c169d699bfd7e8da80f65b545821a6b2215c3e83107")
"""The package of the npm registry, its version, and the sha256 of its archive."""
MOST_ANSWERS = 100_000


class Browser:
    """One page of a Chromium that this process started. A context manager."""

    def __init__(self, home: Path) -> None:
        """`home` is where Chromium keeps its profile."""
        assert CHROMIUM is not None
        to_browser, self.sending = os.pipe()
        self.receiving, from_browser = os.pipe()
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
            "--no-first-run",
        )
        shell = 'exec 3<&$0 4>&$1; exec "${@:2}"'
        command = [
            "bash",
            "-c",
            shell,
            str(to_browser),
            str(from_browser),
            CHROMIUM,
            *options,
            f"--user-data-dir={home}",
        ]
        self.process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self.read, self.number, self.session = bytearray(), 0, ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.sending)
        os.close(self.receiving)
        self.process.terminate()
        self.process.wait(timeout=30)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command of the DevTools protocol and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        os.write(
            self.sending, json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        )
        answer = self._await(lambda said: said.get("id") == self.number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _await(self, wanted: Any) -> dict[str, Any]:
        for _ in range(MOST_ANSWERS):
            while b"\0" not in self.read:
                piece = os.read(self.receiving, 1 << 20)
                assert piece, "Chromium ended"
                self.read += piece
            said, _, self.read = self.read.partition(b"\0")
            if wanted(message := json.loads(said)):
                return message
        raise AssertionError("Chromium sends events without end")

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page at a width, as a phone or a screen would show it."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self._await(lambda said: said.get("method") == "Page.loadEventFired")
        self.call("Page.navigate", url=url)
        self._await(lambda said: said.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression gives; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def serious(self) -> list[str]:
        """The page's serious and critical findings of axe-core: rule, number of places, reason, and the first place."""
        self.evaluate(npm_file(AXE, "axe.min.js").decode())
        passed, found = self.evaluate(
            "axe.run().then((all) => [all.passes.length, all.violations.map((v) => [v.impact, v.id, v.nodes.length, v.nodes[0].failureSummary, v.nodes[0].html])])"
        )
        assert passed, "axe-core checked nothing"
        return [str(one[1:]) for one in found if one[0] in ("serious", "critical")]

    def screenshot(self, path: Path) -> None:
        """What the viewport shows, as a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
