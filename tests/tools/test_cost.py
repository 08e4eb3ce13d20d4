"""The counts of a record's cost are read from the output of the tools."""

from pathlib import Path

from tests.tools.cost import by_role, calls_of, grouped, total_of

STRACE = """strace: Process 16024 attached
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 52.10    0.001200           4       300           epoll_wait
 30.00    0.000700           3       200        12 recvfrom
 17.90    0.000400           4       100           sendto
  0.00    0.000000           0         7           clock_gettime
------ ----------- ----------- --------- --------- ----------------
100.00    0.002300           3       607        12 total
"""


def test_system_calls_are_read_with_and_without_errors_and_grouped() -> None:
    calls = calls_of(STRACE)
    assert calls == {"epoll_wait": 300, "recvfrom": 200, "sendto": 100, "clock_gettime": 7}
    assert grouped(calls) == {"receives": 200, "sends": 100, "wake-ups": 300, "reads": 0, "writes": 0, "other": 7}


def test_instructions_are_the_totals_of_a_callgrind_file(tmp_path: Path) -> None:
    path = tmp_path / "callgrind.out.1"
    path.write_text("events: Ir\nsummary: 0\n\nfn=(1)\n3 4\n\nsummary: 0\ntotals: 19478968\n")
    assert total_of(path) == 19_478_968


def test_the_followers_are_counted_together() -> None:
    assert by_role({1: 10, 2: 3, 3: 4}, 1) == {"leader": 10, "followers": 7}
