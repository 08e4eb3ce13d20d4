"""The process of one client, and who watches it."""

import resource
import sys
from pathlib import Path

import pytest

from linearizability.history.recorder import RecordingError
from linearizability.pipeline.engine import check
from linearizability.workload.client_run import CANNOT_RECORD
from linearizability.workload.clients import Clients
from linearizability.workload.profile import Producing, Profile


def test_a_client_that_finds_the_disk_full_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes no more than a few hundred bytes of a file: its history ends in the middle of a line."""
    profile = Profile(producers=[Producing(client="librdkafka")], consumers=[])
    clients = Clients(profile, run="r", bootstrap="127.0.0.1:1", topic="t", seed=1, folder=tmp_path)
    # A module that is imported under the limit would leave a cut-off file of bytecode, which breaks every later import of it.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        clients.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (process,) = clients.processes
    assert process.wait(30)
    assert process.exit_code() == CANNOT_RECORD, process.tail()
    with pytest.raises(RecordingError, match=r"client 1 could not go on; [0-9]+ bytes are free"):
        clients.check()
    (judgement,) = check([clients.history])
    assert judgement.verdict == "unknown" and "history-01000.jsonl:1: " in judgement.reasons[0], judgement.reasons
