"""Three nodes that are restarted, killed, frozen and cut off while every client's idempotent producer works on them.

Nothing that was acknowledged is lost, nothing is there twice, and the order is that of the sends.

kafka-python may give records up. A leader that is cut off does not know that it is deposed: it names itself in its metadata, and
refuses a batch whose predecessors went to the new leader, with OUT_OF_ORDER_SEQUENCE_NUMBER. Apache Kafka 4.3.1 and the reference
did so in both of two tries. Java's client and librdkafka do not go back to a leader of an older epoch; kafka-python 3.0.12
accepts any metadata, and fails the batch for good. This happened in 2 of about 18 runs on a busy machine, and to none of 30
producers on each of the two brokers in twelve runs (482,649 records). Requests in flight are not the cause: it sends one batch of
a partition at a time.
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
MAY_GIVE_UP = "kafka-python"


@pytest.mark.sampled(days=3)
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
        assert name == MAY_GIVE_UP or not became["given up"], f"{name}: {became}"
        assert became["sent"] > 100, name
