"""The same schedule gives the same trace, byte for byte, also in another process with other hashes."""

import json
import os
import subprocess
import sys

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from reference.node.node import Node
from tests.simulation.short import short

PROGRAM = """
import json, sys
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Schedule
for line in sys.stdin:
    outcome, _ = run_schedule(Schedule.model_validate_json(line))
    print(json.dumps([outcome.digest, outcome.verdict]), flush=True)
"""


@pytest.mark.parametrize(
    ("seeds", "cluster_seeds"),
    [(range(40), range(4)), pytest.param(range(40, 188), range(4, 12), marks=pytest.mark.slow)],
)
def test_the_same_schedule_gives_the_same_trace_in_another_process(seeds, cluster_seeds):
    schedules = [short(seed) for seed in seeds] + [short(seed, nodes=3) for seed in cluster_seeds]
    lines = "".join(json.dumps(json.loads(schedule.to_json())) + "\n" for schedule in schedules)
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(lines)
        child.stdin.close()
        here = [run_schedule(schedule)[0] for schedule in schedules]
        there = [json.loads(line) for line in child.stdout]
    assert child.returncode == 0
    assert there == [[outcome.digest, outcome.verdict] for outcome in here]
    assert len({outcome.digest for outcome in here}) == len(schedules)
    assert not [(outcome.schedule.seed, outcome.rule, outcome.text) for outcome in here if outcome.verdict == "invalid"]


@pytest.mark.parametrize("workload", ["records", "groups", "transactions", "copy"])
def test_a_node_keeps_no_part_of_a_frame(workload, monkeypatch):
    """Requests and responses are received into the same buffer as those before."""
    expected = run_schedule(drawn := draw(2, nodes=3, workload=workload))[0]

    def lent_to(method):
        def receive(node, *arguments):
            *whence, frame, now = arguments
            lent = bytearray(frame)
            method(node, *whence, memoryview(lent), now)
            lent[:] = b"\xff" * len(lent)

        return receive

    monkeypatch.setattr(Node, "receive", lent_to(Node.receive))
    monkeypatch.setattr(Node, "answered", lent_to(Node.answered))
    assert run_schedule(drawn)[0].digest == expected.digest


def test_keeping_the_trace_changes_nothing():
    bare, _ = run_schedule(short(3))
    kept, trace = run_schedule(short(3), keep_trace=True)
    assert bare.digest == kept.digest
    assert trace.lines and trace.events


def test_another_seed_of_chance_gives_another_trace():
    schedule = short(3)
    assert run_schedule(schedule)[0].digest != run_schedule(schedule.model_copy(update={"seed": 4}))[0].digest
