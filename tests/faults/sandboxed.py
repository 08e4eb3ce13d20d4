"""Python code in a sandbox of its own: a process that may make network namespaces."""

import subprocess
import sys
from pathlib import Path

from linearizability.faults.sandbox import unshare

REPOSITORY = Path(__file__).parents[2]


def sandboxed(code: str, *, timeout_s: float = 120, in_a_session: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the code; `in_a_session`: in a session, and a group of processes, of its own."""
    command = [*unshare(), sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout_s, start_new_session=in_a_session
    )
