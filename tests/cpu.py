"""`pytest -p tests.cpu`: the CPU seconds (user and system) of each test file, of its workers and all that they started.

On a busy machine wall time says little. What a process costs after its test ended is charged to the test that runs then, and
a process that left its parent is not counted. Fixtures of a session are charged to the first file that uses them. `tests/longest.txt`
has its order from here: `pytest -p tests.cpu --cpu-table FILE` writes such lines.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PROPERTY = "cpu_seconds"
COLLECTING = "(collecting)"
"""Under this name: imports, and the collection of the tests, of all workers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-table", type=Path, help="write `seconds file` lines, the dearest file first")


def of_this_tree() -> float:
    """Seconds of CPU that this process, its ended children and its living descendants have used."""
    lines: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        lines[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    children: dict[int, list[int]] = defaultdict(list)
    for pid, (parent, _) in lines.items():
        children[parent].append(pid)
    tree = [os.getpid()]
    for pid in tree:
        tree += children[pid]
    return sum(lines[pid][1] for pid in tree)


class Meter:
    """Charges what was used since the last test ended to the one that ends now."""

    def __init__(self) -> None:
        self.read = 0.0
        self.collecting = 0.0

    def since(self) -> float:
        before, self.read = self.read, of_this_tree()
        return max(0.0, self.read - before)

    def pytest_collection_finish(self) -> None:
        self.collecting = self.since()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append((PROPERTY, (self.since(), self.collecting)))
            self.collecting = 0.0
        return report


class Table:
    """Adds up the reports, of all workers."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY:
                assert isinstance(value, list | tuple), value
                used, collecting = value
                self.seconds[report.nodeid.partition("::")[0]] += used
                self.seconds[COLLECTING] += collecting

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = [f"{seconds:.0f} {file}" for file, seconds in self.seconds.most_common()]
        terminalreporter.section(f"CPU seconds: {sum(self.seconds.values()):.0f}")
        terminalreporter.write_line("\n".join(lines[:40]))
        if self.file:
            self.file.write_text("".join(f"{line}\n" for line in lines))


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Meter())
    if not is_worker:
        config.pluginmanager.register(Table(config.getoption("--cpu-table")))
