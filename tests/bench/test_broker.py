"""linearizability/bench/broker.py says what it cannot measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from linearizability.bench import broker as bench
from linearizability.targets import TargetError, open_target


def test_a_broker_without_a_process_of_ours_is_refused_by_name(tmp_path: Path) -> None:
    plan = bench.Plan(("commit 1 partition",), 1, 0.2, 0.0)
    with open_target("reference:1", folder=tmp_path / "broker") as target:
        spec = f"addr:{target.bootstrap}"
        with pytest.raises(TargetError, match=f"{spec}: a benchmark needs the broker's process"):
            bench.compare(spec, spec, plan, tmp_path, lambda _: None)
