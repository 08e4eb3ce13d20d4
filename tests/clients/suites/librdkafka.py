"""librdkafka's own tests, of the sources that the crate rdkafka-sys carries.

They are built once, with a C and C++ compiler, make, and the headers of OpenSSL and zlib. Each test number is a process of its
own, in quick mode, so that a crash or a hang is one failure. Some tests call Kafka's scripts, which are made here from its jars.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from linearizability.targets.artifacts import java, kafka_jars
from tests.clients.suites.crates import vendored, well_done
from tests.clients.suites.suite import (
    FAIL,
    KEPT,
    OUTPUT_KEPT,
    PASS,
    SKIP,
    WITH_ACCESS_CONTROL,
    Order,
    Outcome,
    Suite,
    needs,
)
from tests.tools.jvm import RELEASE, TOOLS

CRATE, CRATE_VERSION = "rdkafka-sys", "4.10.0+2.12.1"
VERSION = CRATE_VERSION.partition("+")[2]
SCRIPTS = ("kafka-topics", "kafka-acls", "kafka-configs")
TEST_S = 240.0
"""The time limit of one test number. The longest take a minute against a quiet Kafka."""
STATES = {"PASSED": PASS, "FAILED": FAIL, "RUNNING": FAIL, "SKIPPED": SKIP}
TABLE = re.compile(r"^\s+_TEST\((\w+),\s*([\w |]+)((?:[^()]|\([^()]*\))*)\)", re.M)
WITHOUT_BROKER = ("TEST_F_LOCAL", "TEST_F_MANUAL", "TEST_F_KNOWN_ISSUE")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def build() -> Path:
    """The folder of the built tests. Errors: SystemExit where a program is missing or the build fails."""
    home = KEPT / f"librdkafka-{VERSION}"
    if not (home / "tests" / "test-runner").exists():
        needs("cargo", "make", "gcc", "g++")
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            sources = vendored(CRATE, CRATE_VERSION.partition("+")[0], Path(folder)) / "librdkafka"
            for command in (["./configure", "--disable-gssapi"], ["make", "libs"], ["make", "-C", "tests", "build"]):
                well_done(command, sources)
            shutil.rmtree(home, ignore_errors=True)
            sources.rename(home)
    return home / "tests"


def needing_a_broker(table: str, chosen: str) -> list[str]:
    """The tests that need a broker, in a cluster with automatic creation of topics, and whose name matches; by the table in `test.c`."""

    def is_run(name: str, flags: str, rest: str) -> bool:
        is_default = ".scenario" not in rest or "default" in rest
        needs_broker = not set(flags.split()) & {*WITHOUT_BROKER} and not name.endswith("_mock")
        return needs_broker and is_default and bool(re.search(chosen, name))

    return [name for name, flags, rest in TABLE.findall(table) if is_run(name, flags, rest)]


def run(order: Order) -> Iterator[Outcome]:
    tests = build()
    end = time.monotonic() + order.minutes * 60
    environment = os.environ | {
        "RDKAFKA_TEST_CONF": str(order.folder / "test.conf"),
        "KAFKA_PATH": str(order.folder),
        "BROKERS": order.bootstrap,
        "TEST_KAFKA_VERSION": RELEASE,
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
    }
    environment.pop("CI", None)
    (order.folder / "test.conf").write_text(f"metadata.broker.list={order.bootstrap}\ntest.topic.random=true\n")
    _write_scripts(order.folder / "bin")
    chosen = needing_a_broker((tests / "test.c").read_text(), order.chosen)
    for number in dict.fromkeys(name[:4] for name in chosen):
        if time.monotonic() > end:
            raise SystemExit(f"{order.minutes:.0f} minutes are over before test {number}")
        for outcome in _run(number, tests, environment, order):
            if outcome.test in (*chosen, number):
                yield outcome


def _run(number: str, tests: Path, environment: dict[str, str], order: Order) -> Iterator[Outcome]:
    report, log = order.folder / f"{number}.json", order.folder / f"{number}.log"
    began = time.monotonic()
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["./test-runner", "-Q", "-L", "-K", "-p1"],
            cwd=tests,
            env=environment | {"TESTS": number, "TEST_REPORT": str(report)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(TEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    printed = COLOURS.sub("", log.read_text(errors="replace"))
    if not report.exists():
        ended = f"\nended with {process.returncode} after {time.monotonic() - began:.0f} s, without a report"
        yield Outcome(number, FAIL, time.monotonic() - began, printed[-OUTPUT_KEPT:] + ended)
        return
    states = re.findall(r'"name": "(\w+)", "state": "(\w+)".*?"duration": ([\d.]+)', report.read_text())
    for name, state, seconds in states:
        if name.startswith(number) and state in STATES:
            why = "\n".join(line for line in printed.splitlines() if "FAIL" in line or "###" in line)
            yield Outcome(name, STATES[state], float(seconds), f"{printed[-OUTPUT_KEPT:]}\n{why}")


def _write_scripts(folder: Path) -> None:
    """Kafka's command-line tools by their scripts' names, of the pinned jars."""
    folder.mkdir()
    jars = os.pathsep.join(str(jar) for jar in kafka_jars(RELEASE))
    for script in SCRIPTS:
        path = folder / f"{script}.sh"
        path.write_text(f'#!/bin/sh\nexec {java()} -XX:TieredStopAtLevel=1 -cp "{jars}" {TOOLS[script]} "$@"\n')
        path.chmod(0o755)


LIBRDKAFKA = Suite(
    "librdkafka",
    "librdkafka",
    VERSION,
    nodes=3,
    run=run,
    config=WITH_ACCESS_CONTROL | {"num.partitions": "4", "default.replication.factor": "3"},
    left_out="Tests that need no broker, those that librdkafka marks as known issues or manual, and those for a cluster without "
    "automatic creation of topics; with `-Q` tests are shorter. On Kafka 4.3.1 only those six were run that had failed on the reference.",
)
