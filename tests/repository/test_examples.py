"""Commands that a --help or a document of the site shows are run, as a reader would (`examples.py` has the table)."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from linearizability.targets.artifacts import cache_folder
from linearizability.targets.ports import free_ports
from linearizability.testing import reference_broker
from tests.history.test_given_contract import edn
from tests.history.test_importers import verifiable
from tests.repository.examples import SCENES, SLOW_SCENES, Case
from tests.repository.test_command_line import REPOSITORY

PACKAGES = ("tidegauge", "reference", "spec", "conformance", "linearizability")
HISTORY = REPOSITORY / "tests" / "history" / "regressions" / "kafka-1.1.0-unclean-election"
LABELLED = REPOSITORY / "tests" / "history" / "data" / "labelled.jsonl.gz"
LABELLED_HISTORIES = 20
"""So many of its 500 are checked."""
SCHEDULE = REPOSITORY / "tests" / "simulation" / "found" / "late-end-of-a-zombie.json"
PROPERTIES = """node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={name}-data
"""
STARTS_WITHIN_S = 120
ENDS_WITHIN_S = 900


class Shop:
    """Runs commands by a copy of the packages, for some of them write into their own package; most in a fork (`shop.py`)."""

    def __init__(self, home: Path, cache: Path) -> None:
        self.home = home
        tracked = subprocess.run(
            ["git", "ls-files", "-z", *PACKAGES], cwd=REPOSITORY, capture_output=True, check=True
        ).stdout.decode()
        for name in filter(None, tracked.split("\0")):
            compiled = cache_from_source(name) if name.endswith(".py") else name
            for file in {name, compiled}:
                if (REPOSITORY / file).is_file():
                    (home / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(
                        REPOSITORY / file, home / file
                    )  # with its time, by which Python knows what it compiled
        shutil.copy(Path(__file__).with_name("shop.py"), home / "shop.py")
        self.environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(home),
            "TIDEGAUGE_CACHE": str(cache),
            "BROWSER": "true",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(home / "shop.py")],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, words: list[str], folder: Path) -> tuple[int, str]:
        """Exit code and what was printed."""
        if words[0] != "tidegauge":
            done = subprocess.run(
                [sys.executable, *words[1:]],
                cwd=folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=ENDS_WITHIN_S,
            )
            return done.returncode, done.stdout
        output = self.home / "output"
        asked = {"words": words[1:], "folder": str(folder), "output": str(output), "environment": {}}
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()), output.read_text()

    def interrupt(self, words: list[str], folder: Path, at: str) -> tuple[int, str]:
        """Start a command that does not end, interrupt it when it prints a text; exit code and all that it printed."""
        command = [sys.executable, "-m", *words] if words[0] == "tidegauge" else [sys.executable, *words[1:]]
        output = self.home / "output"
        with output.open("w") as file:
            started = subprocess.Popen(command, cwd=folder, env=self.environment, stdout=file, stderr=file)
        until = time.monotonic() + STARTS_WITHIN_S
        try:
            while at not in output.read_text() and started.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            started.send_signal(signal.SIGINT)
            return started.wait(STARTS_WITHIN_S), output.read_text()
        finally:
            started.kill()
            started.wait()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    opened = Shop(tmp_path_factory.mktemp("shop"), cache_folder().parent)
    yield opened
    opened.close()


class Scene:
    """A folder with what the commands of a scene need, and what stands for `{...}` in them."""

    def __init__(self, name: str, shop: Shop, folder: Path, stack: ExitStack) -> None:
        self.shop, self.folder, self.stack = shop, folder, stack
        self.facts = {"folder": str(folder), "python": sys.executable}
        prepare = getattr(self, f"_{re.sub(r'[^a-z]', '_', name.lower())}", None)
        if prepare:
            prepare()

    def follow(self, case: Case) -> None:
        """Run a case. Errors: AssertionError with what it printed."""
        text = re.sub(r"\{(\w+)\}", lambda found: self.facts.get(found[1], found[0]), case.run)
        words: list[str] = []
        for word in shlex.split(text):
            is_pattern = "*" in word and f"'{word}'" not in text
            words += (
                sorted(str(path.relative_to(self.folder)) for path in self.folder.glob(word)) if is_pattern else [word]
            )
        if case.stops_at:
            code, printed = self.shop.interrupt(words, self.folder, case.stops_at)
            assert case.stops_at in printed, f"{text}\n{printed[-3000:]}"
        else:
            code, printed = self.shop.run(words, self.folder)
        seen = " ".join(printed.split())
        assert (code, case.shows in seen) == (case.code, True), f"{text}: exit code {code}\n{printed[-3000:]}"
        assert printed or "--quiet" in words, text
        assert "Traceback" not in printed, f"{text}\n{printed[-3000:]}"

    def _address(self) -> None:
        broker = self.stack.enter_context(reference_broker())
        self.facts["address"] = broker.bootstrap

    def _port(self) -> None:
        self.facts["port"] = str(free_ports(1)[0])

    def _latest(self) -> None:
        shutil.copytree(HISTORY, self.folder / "results" / "latest")
        self.facts["partition"] = "hunt-20261122t040943z-3-0"

    def _server_properties(self) -> None:
        for name in ("server", "second", "third"):
            port, controller = free_ports(2)
            text = PROPERTIES.format(port=port, controller=controller, name=name)
            if name == "third":
                text += f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
            else:
                text += f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            (self.folder / f"{name}.properties").write_text(text)

    def _an_address(self) -> None:
        self._address()
        (self.folder / "client.properties").write_text("security.protocol=PLAINTEXT\n")
        words = ["tidegauge", "run", "API-01", "--target", f"addr:{self.facts['address']}", "--results", "before"]
        assert self.shop.run(words, self.folder)[0] == 0
        shutil.copy(self.folder / "before" / "latest" / "report.json", self.folder / "baseline.json")

    def _a_history(self) -> None:
        self._address()
        self._latest()
        edn(self.folder)
        verifiable(self.folder / "tools", [0, 1, 2, 3])
        with gzip.open(LABELLED, "rt") as whole, gzip.open(self.folder / "labelled.jsonl.gz", "wt") as part:
            part.writelines(itertools.islice(whole, LABELLED_HISTORIES))

    def _a_simulation(self) -> None:
        shutil.copy(SCHEDULE, self.folder / "failing-schedule.json")
        (self.folder / "night.toml").write_text("jobs = 1\n[[series]]\nminutes = 0.03\n")

    def _clusters(self) -> None:
        self._port()

    def _adapters(self) -> None:
        assert self.shop.run(["tidegauge", "adapter", "new", "my-adapter"], self.folder)[0] == 0

    def _the_specification(self) -> None:
        words = ["tidegauge", "fuzz", "--nodes", "3", "--schedules", "2", "--traces"]
        assert self.shop.run(words, self.folder)[0] == 0

    def _histories_on_spark(self) -> None:
        self._address()
        self._latest()
        for place in ("1/history", "17"):
            shutil.copytree(HISTORY, self.folder / "runs" / place)


@pytest.mark.sampled(days=5)
@pytest.mark.java
@pytest.mark.parametrize("name", SCENES)
def test_what_is_shown_runs(name: str, shop: Shop, tmp_path: Path) -> None:
    play(name, SCENES[name], shop, tmp_path)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.spark
@pytest.mark.parametrize("name", SLOW_SCENES)
def test_what_takes_long_runs(name: str, shop: Shop, tmp_path: Path) -> None:
    play(name, SLOW_SCENES[name], shop, tmp_path)


def play(name: str, cases: tuple[Case, ...], shop: Shop, folder: Path) -> None:
    """Run the cases of a scene; all that went wrong is reported together. `pytest -s` shows how long each took."""
    wrong: list[str] = []
    with ExitStack() as stack:
        scene = Scene(name, shop, folder, stack)
        for case in cases:
            began = time.monotonic()
            try:
                scene.follow(case)
            except AssertionError as error:
                wrong.append(str(error))
                print(error)
            print(f"{time.monotonic() - began:6.1f} s  {case.run}", flush=True)
            if case.text.startswith("tidegauge run FRM API"):
                for copy in ("A", "B"):
                    shutil.copytree(folder / "results" / "latest", folder / "results" / copy)
    assert not wrong, "\n\n".join(wrong)
