"""Processes can be killed, frozen and stopped, and no started process outlives its starter."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linearizability.targets import leash, watchdog
from linearizability.targets.process import Process
from linearizability.targets.target import TargetError
from tests.waiting import await_true

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
HUNGRY = "import time; print('here', flush=True); taken = bytearray(b'x') * (80 << 20); time.sleep(600)"
OFFSPRING = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HUNGRY!r}]); import time; time.sleep(600)"
STUBBORN = [
    sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(600)",
]  # fmt: skip


def state(pid: int) -> str:
    """The kernel's letter for the process (S sleeping, T stopped, Z dead but unburied); empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def gone(pid: int) -> bool:
    return state(pid) in ("", "Z")


@pytest.fixture
def started(tmp_path):
    made: list[Process] = []

    def start(command: list[str]) -> Process:
        process = Process("the sleeper", command, tmp_path / "log", folder=tmp_path)
        made.append(process)
        process.start()
        await_true(lambda: "here" in process.tail())
        return process

    yield start
    for process in made:
        process.kill()


def test_kill_and_start_again(started):
    process = started(SLEEPER)
    first = process.pid
    process.kill()
    assert gone(first) and not process.running and process.exit_code() == -signal.SIGKILL
    process.start()
    assert process.running and process.pid != first and process.starts == 2


def test_pause_freezes_and_resume_goes_on(started):
    process = started(SLEEPER)
    process.pause()
    await_true(lambda: state(process.pid) == "T")
    process.resume()
    await_true(lambda: state(process.pid) == "S")


def test_a_frozen_process_can_be_stopped_and_killed(started):
    process = started(SLEEPER)
    process.pause()
    assert process.stop(timeout_s=20)
    process.start()
    process.pause()
    process.kill()
    assert not process.running


def test_stop_becomes_kill_when_it_takes_too_long(started):
    process = started(STUBBORN)
    assert not process.stop(timeout_s=0.2)
    assert process.exit_code() == -signal.SIGKILL


def test_what_cannot_be_done_says_so(started, tmp_path):
    process = started(SLEEPER)
    with pytest.raises(TargetError, match="the sleeper runs already"):
        process.start()
    process.kill()
    with pytest.raises(TargetError, match="is down and cannot be paused"):
        process.pause()
    missing = Process("nothing", [str(tmp_path / "absent")], tmp_path / "absent.log", folder=tmp_path)
    with pytest.raises(TargetError, match=r"nothing could not be started: .*absent"):
        missing.start()


def test_the_tail_is_of_the_present_incarnation(started):
    process = started(
        [sys.executable, "-c", "import os, time; print('here', os.getpid(), flush=True); time.sleep(600)"]
    )
    process.kill()
    process.start()
    await_true(lambda: process.tail() == f"here {process.pid}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_its_starter(tmp_path, number):
    code = (
        "import sys, time; from pathlib import Path; from linearizability.targets.process import Process\n"
        f"child = Process('child', {SLEEPER!r}, Path('log'), folder=Path('.')); child.start(); child.pause()\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
    ) as starter:
        assert starter.stdout is not None
        child = int(starter.stdout.readline())
        assert not gone(child)
        starter.send_signal(number)
        starter.wait(20)
    await_true(lambda: gone(child))


def test_a_leftover_of_a_dead_owner_is_removed_and_nothing_else(started):
    ours = started(SLEEPER)
    dead = leash.owner().rsplit("/", 1)[0] + "/1"
    orphan = subprocess.Popen(["sleep", "600"], env=os.environ | {leash.OWNER: dead})
    try:
        await_true(lambda: orphan.pid in leash.remove_leftovers())
        assert orphan.wait(20) == -signal.SIGKILL
        assert ours.running
    finally:
        orphan.kill()


@pytest.fixture
def short_of_memory(monkeypatch):
    """A watchdog of a machine that is always short of memory, and for which 50 MB are much."""
    monkeypatch.setattr(leash, "_pipe", {})
    monkeypatch.setenv(leash.FLOOR, "1")
    monkeypatch.setattr(watchdog, "LARGE", (50 << 20) / watchdog.memory()[0])
    yield
    for end in leash._pipe[os.getpid()]:
        os.close(end)


def test_what_takes_all_memory_is_ended_and_nothing_else(short_of_memory, started):
    small, parent = started(SLEEPER), started([sys.executable, "-c", OFFSPRING])
    await_true(parent.ended_for_memory)
    assert re.fullmatch(
        r"took 0\.1 GB of memory, and was ended because [\d.]+ of this machine's [\d.]+ GB were left",
        parent.ended_for_memory(),
    )
    assert parent.running and small.running and not small.ended_for_memory()
    leash.forget_end(parent.pid)
    assert not parent.ended_for_memory()


def test_nothing_is_ended_where_memory_is_left(started):
    hungry = started([sys.executable, "-c", HUNGRY])
    time.sleep(3 * watchdog.LOOK_EVERY_S)
    assert hungry.running and not hungry.ended_for_memory()


@pytest.mark.parametrize("given", ["5%", "", "5", "-0.1", "nan"])
def test_a_floor_that_is_no_share_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr(leash, "_pipe", {})
    monkeypatch.setenv(leash.FLOOR, given)
    with pytest.raises(TargetError, match=f"TIDEGAUGE_MEMORY_FLOOR={given}: it is a share"):
        leash.start(["true"])
