"""How Hypothesis draws: no deadlines, for a busy machine breaks them; and in CI the same examples every time.

A run of CI judges a change, not the luck of the day. `make test` by hand and `make test-slow` draw again each time: what they
find becomes a test of its own.

A test that is marked with a step of the specification (`spec/TRACEABILITY.md`) fails if it does not call the step's method.

The tests of the pure core (marker `core`, `make test-fast`) start no process, in any run; one that has to is marked `process`,
`java` or `kafka`.

Test files run in the order of `tests/longest.txt` (longest first), then as collected: with workers side by side, a long file
that starts last would keep one worker busy alone.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.docker_daemon import docker_daemon as docker_daemon
from tests.docker_daemon import in_docker as in_docker
from tests.shares import day, how_to_run, without_other_days
from tests.wheels import wheels as wheels

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores SIGINT for its background jobs, and what tests start would inherit that: some are interrupted by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start many processes, each of which would compile all modules again (half of the CPU time of a broker's start).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Histories here are small: four shuffle partitions instead of 32, and a JVM that compiles quickly and not well.
QUICK_JVM = "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'"
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--conf spark.sql.shuffle.partitions=4 {QUICK_JVM} pyspark-shell")
day()  # before workers start
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("detect", deadline=None, phases=[Phase.explicit, Phase.generate])
"""Where it matters alone whether a test fails: what fails is not made smaller, which may take five minutes."""
settings.load_profile("ci" if os.environ.get("CI") else "local")


ROOT = Path(__file__).parents[1]
LONGEST = Path(__file__).with_name("longest.txt")
"""Lines `seconds file`, the longest file first."""
CORE = ("protocol", "storage", "replication", "coordinator", "controller", "node")
NOT_CORE = ("java", "kafka", "spark", "slow", "process")
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the core that are not long; sort by file, the longest first, where workers run side by side."""
    if others := without_other_days(items):
        config.hook.pytest_deselected(items=others)
    rank = {line.split()[1]: number for number, line in enumerate(LONGEST.read_text().splitlines())}
    for item in items:
        file = item.nodeid.partition("::")[0]
        in_core = file.startswith(tuple(f"tests/{folder}/" for folder in CORE)) and file not in rank
        if in_core and not any(item.get_closest_marker(name) for name in NOT_CORE):
            item.add_marker("core")
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed and item.get_closest_marker("sampled"):
        report.sections.append(("a share of the day", how_to_run(item)))
    return report


_in_core = False


def refuse_processes(event: str, _: tuple[object, ...]) -> None:
    """An audit hook: a test of the core that starts a process fails."""
    if _in_core and event in STARTS:
        raise AssertionError(f"a test of the pure core starts a process ({event}); mark it `process`")


sys.addaudithook(refuse_processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _in_core
    _in_core = item.get_closest_marker("core") is not None
    try:
        return (yield)
    finally:
        _in_core = False


@cache
def group_of(file: str) -> str:
    """The name that a file gives to `xdist_group`, else the file.

    It is read from the text: pytest-xdist 3.8 hands it on by a change of the node ids, which pytest 9.2 does not see any more.
    """
    found = re.search(r'\.xdist_group\("(\w+)"\)', (ROOT / file).read_text())
    return found[1] if found else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file on one worker, for they share fixtures; and the files of an `xdist_group`, for theirs."""
    from xdist.scheduler import LoadGroupScheduling

    class ByFileOrGroup(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0])

    return ByFileOrGroup(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Notes what a marked test calls, by file and name."""
    steps = [(mark.args[0], name) for mark in pyfuncitem.iter_markers("step") for name in mark.args[1:]]
    if not steps:
        return (yield)
    from spec.traceability import is_taken, method_of

    if not any(method_of(step, book)[1] for book, step in steps):
        return (yield)
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name.removeprefix("_")))

    sys.setprofile(note)
    try:
        result = yield
    finally:
        sys.setprofile(None)
    assert not (untaken := [step for step in steps if not is_taken(*step, called)]), f"no step of this test: {untaken}"
    return result
