"""Drawn runs of the unchanged nodes, of each workload beside each coordination: none breaks a promise.

The seeds are fixed. They are few, and find what breaks one run in ten or more; `fuzz` and `fuzz campaign` look for the rest.
"""

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule

WORKLOADS = ("records", "transactions", "groups", "copy")
CLUSTERS = {("kraft", 3): 5, ("kraft", 1): 2, ("zookeeper", 3): 2, ("changing-voters", 3): 2}
"""(coordination, number of nodes) -> number of seeds of each workload."""


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(
    ("coordination", "nodes", "seed"),
    [(*cluster, seed) for cluster, seeds in CLUSTERS.items() for seed in range(seeds)],
)
def test_no_promise_is_broken(coordination: str, nodes: int, seed: int, workload: str) -> None:
    outcome, _ = run_schedule(draw(seed, None, nodes, workload, coordination))
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
