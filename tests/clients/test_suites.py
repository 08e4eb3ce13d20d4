"""A client library's own tests run against the reference by one command."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(shutil.which("go") is None, reason="franz-go's tests are built with Go")
def test_a_test_of_franz_go_passes_on_three_nodes() -> None:
    command = [sys.executable, "-m", "tests.clients.suites", "--run", "TestIssue337$|TestPing$"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 pass, 0 fail, 0 skip"
