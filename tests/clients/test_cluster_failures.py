"""Three nodes that are restarted, killed, frozen and cut off while every client's idempotent producer works on them.

Nothing that was acknowledged is lost, nothing is there twice, and the order is that of the sends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from linearizability.faults import sandbox
from tests.clients.conftest import can_stream

REPOSITORY = Path(__file__).parents[2]
WITHIN_S = 600


@pytest.mark.java
@pytest.mark.timeout(WITHIN_S)
def test_every_client_outlives_whatever_befalls_the_nodes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.clients.outliving", str(tmp_path)]
    cut_off = not sandbox.obstacle()
    if cut_off:
        command, environment = [*sandbox.unshare(), *command], os.environ | {sandbox.INSIDE: "1"}
    else:
        environment = dict(os.environ)
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported.pop("cut off") == {"leaders": int(cut_off)}
    assert set(reported) == set(can_stream())
    for name, became in reported.items():
        assert (became["lost"], became["doubled"], became["in order"]) == (0, 0, 1), f"{name}: {became}"
        assert became["sent"] > 100, name
