"""A cluster's nodes are replaced one by one, on their folders and under load: Apache Kafka, the reference, Apache Kafka.

`python -m pytest -m slow -s tests/targets/test_rolling.py` takes some three minutes for each case. A node ends in good order, or
is killed, in turn; the next follows when all replicas are in sync. The history is judged, and the nodes are compared.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from linearizability.agreement import SNAPSHOT_OFTEN
from linearizability.faults.backend import Listener
from linearizability.faults.nemesis import Nemesis
from linearizability.faults.plan import FAST_FAILOVER, Plan
from linearizability.faults.round import AFTER_HEALING_S, Round
from linearizability.faults.schedule import Schedule
from linearizability.targets import TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.mixed import MixedCluster
from linearizability.workload.clients import Clients
from linearizability.workload.cluster import look

IN_SYNC_WITHIN_S = 120.0


class Rolling(Round):
    """A round whose only fault is that nodes are replaced."""

    kinds: Sequence[str]

    def _attack(self, clients: Clients, nemesis: Nemesis, say: Listener) -> list[str]:
        began = time.monotonic()
        try:
            clients.start()
            self._until_at_work(clients)
            for number, (spec, node) in enumerate(itertools.product(self.kinds, (1, 2, 3))):
                self._replace(node, spec, clean=number % 2 == 0)
                clients.check()
                say(f"node {node} is {spec}: {clients.counts()}")
            self.attacked_s = time.monotonic() - began
            time.sleep(AFTER_HEALING_S)
            return [f"{name} did not end in time and was killed" for name in clients.stop()]
        finally:
            clients.kill()

    def _replace(self, node: int, spec: str, *, clean: bool) -> None:
        assert isinstance(self.target, MixedCluster)
        kind = open_target(spec, folder=self.folder / "unused", nodes=None)
        assert isinstance(kind, ClusterTarget)
        self.target.change_kind(node, kind, clean=clean)
        until = time.monotonic() + IN_SYNC_WITHIN_S
        while not look(self.target.nodes, self.topic).complete(self.profile.partitions):
            if time.monotonic() > until:
                raise TargetError(f"not all replicas are in sync after node {node} has become {spec}")
            time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("first", "last"), [("kafka:4.3.1", "kafka:4.3.1"), ("kafka:4.3.1", "kafka:4.4.0"), ("kafka:3.9.2", "kafka:4.3.1")]
)
def test_kafka_becomes_the_reference_and_kafka_again(first: str, last: str, tmp_path: Path) -> None:
    spec = f"mixed:{first},{first},{first}"
    plan = Plan(target=spec, minutes=1, seed=1, transactions=True, engine="local")
    config = FAST_FAILOVER | SNAPSHOT_OFTEN | {"min.insync.replicas": "2"}
    with open_target(spec, folder=tmp_path, config=config) as target:
        schedule = Schedule(seed=1, seconds=0, waves=[])
        rolling = Rolling(plan, target, None, tmp_path, "rolling", schedule)
        rolling.kinds = ["reference:1", last]
        result = rolling.run(print)
        print(result.model_dump_json(indent=1))
        assert isinstance(target, MixedCluster) and target.describe()["kinds"] == [last] * 3
    assert (result.verdict, result.reasons) == ("valid", [])
    assert result.acknowledged > 500 and result.committed > 5
    assert result.agreement is not None and result.agreement.replicas > 6
