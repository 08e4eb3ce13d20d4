"""Lines of one cause are limited in rate; none goes without being counted."""

from __future__ import annotations

import io
import logging

import pytest

from reference.runtime.limited_log import LINES, MOST_CAUSES, OTHERS, WINDOW_S, LimitedHandler


class Log:
    """A handler on a clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now, self.stream = 100.0, io.StringIO()
        self.handler = LimitedHandler(self.stream, lambda: self.now)

    def write(self, text: str) -> None:
        self.handler.handle(logging.LogRecord("test", logging.INFO, "", 0, "%s", (text,), None))

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Log:
    return Log()


def test_one_cause_with_many_partitions_is_a_few_lines_and_a_count(log: Log) -> None:
    for index in range(5000):
        log.write(f"t-{index}: broker 2 answered with error 6")
    log.write("another cause")
    assert log.lines == [f"t-{index}: broker 2 answered with error 6" for index in range(LINES)] + ["another cause"]
    log.now += WINDOW_S
    log.write("later")
    assert log.lines[-2:] == [f"{5000 - LINES} more lines like: t-#: broker # answered with error #", "later"]


def test_each_window_writes_the_first_lines_again(log: Log) -> None:
    for _ in range(3):
        log.write("again")
        log.now += WINDOW_S
    assert log.lines == ["again"] * 3


def test_the_end_writes_what_was_only_counted(log: Log) -> None:
    for _ in range(LINES + 2):
        log.write("x")
    log.handler.close()
    assert log.lines == ["x"] * LINES + ["2 more lines like: x"]


def test_causes_without_end_do_not_take_memory_without_end(log: Log) -> None:
    for number in range(MOST_CAUSES + 500):
        log.write("x" * number)
    assert len(log.handler._causes) == MOST_CAUSES + 1
    log.handler.close()
    assert log.lines[-1] == f"{500 - LINES} more lines like: {OTHERS}"
