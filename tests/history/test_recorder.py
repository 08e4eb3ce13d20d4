"""linearizability/history/recorder.py: what is recorded is on disk, in order, whatever happens to the client."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from linearizability.history.contract import Contract
from linearizability.history.operations import poll, send
from linearizability.history.recorder import FORMAT, Recorder, RecordingError


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_numbered_lines_between_header_and_end(tmp_path: Path) -> None:
    with Recorder.open(tmp_path, process=3, contract=Contract(acks="1"), run="r") as recorder:
        first = recorder.invoke("send", [send("t-0", 1)])
        second = recorder.invoke("poll", [poll()], process=9)
        recorder.ok(second, [poll({"t-0": [(4, 1)]})])
        recorder.info(first, error="REQUEST_TIMED_OUT")
        recorder.mark("fault", name="kill", node=1)
    header, *events, end = lines(tmp_path / "history-00003.jsonl")
    assert header["format"] == FORMAT and header["run"] == "r" and header["contract"]["acks"] == "1"
    assert [event["n"] for event in [*events, end]] == [1, 2, 3, 4, 5, 6]
    assert [(e["type"], e.get("process"), e.get("operation")) for e in events] == [
        ("invoke", 3, 0),
        ("invoke", 9, 1),
        ("ok", 9, 1),
        ("info", 3, 0),
        ("mark", None, None),
    ]
    assert events[2]["mops"] == [{"op": "poll", "records": {"t-0": [[4, 1]]}}]
    assert end == {"type": "end", "n": 6}


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    recorder = Recorder.open(tmp_path)
    operation = recorder.invoke("send", [send("t-0", 1)])
    recorder.ok(operation)
    with pytest.raises(RecordingError, match="has a completion already"):
        recorder.fail(operation)
    with pytest.raises(RecordingError, match="no operation"):
        recorder.invoke("sned")
    with pytest.raises(FileExistsError):
        Recorder.open(tmp_path)
    recorder.close()
    with pytest.raises(RecordingError, match="closed"):
        recorder.invoke("poll")


def test_a_killed_client_loses_nothing_that_it_recorded(tmp_path: Path) -> None:
    program = (
        "import sys, os, signal; from pathlib import Path\n"
        "from linearizability.history.recorder import Recorder\n"
        "recorder = Recorder.open(Path(sys.argv[1]))\n"
        "for value in range(100): recorder.ok(recorder.invoke('send', [{'op': 'send', 'key': 't-0', 'value': value}]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert result.returncode == -signal.SIGKILL
    assert len(lines(tmp_path / "history-00000.jsonl")) == 1 + 200


def test_a_full_disk_stops_the_recording_and_leaves_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder.open(tmp_path)
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        write(descriptor, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RecordingError, match="No space left"):
        recorder.invoke("poll")
    monkeypatch.undo()
    with pytest.raises(RecordingError, match="No space left"):
        recorder.invoke("poll")
    recorder.close()
    header, torn = (tmp_path / "history-00000.jsonl").read_text().splitlines()
    assert json.loads(header)["type"] == "header" and len(torn) == 5
