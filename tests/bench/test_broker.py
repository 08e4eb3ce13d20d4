"""linearizability/bench/broker.py: what it measures on one node and on three, and what it cannot measure."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from linearizability.bench import broker as bench
from linearizability.bench.brokers import open_for_bench
from linearizability.targets import TargetError, open_target


def test_a_broker_without_a_process_of_ours_is_refused_by_name(tmp_path: Path) -> None:
    plan = bench.Plan(("commit 1 partition",), 1, 0.2, 0.0)
    with open_target("reference:1", folder=tmp_path / "broker") as target:
        spec = f"addr:{target.bootstrap}"
        with pytest.raises(TargetError, match=f"{spec}: a benchmark needs the brokers' processes"):
            bench.compare(spec, spec, plan, tmp_path, lambda _: None)


def test_groups_are_measured_on_one_node(tmp_path: Path) -> None:
    plan = bench.Plan(("commit 1 partition",), 1, 0.2, 0.0, nodes=3)
    with pytest.raises(TargetError, match="'commit 1 partition' is measured on one node"):
        bench.compare("reference", "reference:1", plan, tmp_path, lambda _: None)


def test_a_cluster_is_loaded_at_the_leader_and_all_replicas_take_part_until_the_topic_is_deleted(
    tmp_path: Path,
) -> None:
    plan = bench.Plan((), 1, 0.5, 0.1)
    with open_for_bench("reference:3", tmp_path) as target:

        def logs() -> list[Path]:
            return [log for member in target.members for log in member.data.glob("bench-*/00000000000000000000.log")]

        def held() -> set[Path]:
            """The data folders in which a log holds records."""
            found: set[Path] = set()
            for log in logs():
                with suppress(FileNotFoundError):
                    if log.stat().st_size:
                        found.add(log.parent.parent)
            return found

        with ThreadPoolExecutor() as pool:
            for case in ("produce 1 x 100 B", "fetch 64 KiB", "librdkafka produce 100 B"):
                measured = pool.submit(bench.measure, target, case, plan)
                most: set[Path] = set()
                while not measured.done():
                    most = max(most, held(), key=len)
                    time.sleep(0.02)
                assert measured.result()["requests"] > 0
                assert most == {member.data for member in target.members}
        deadline = time.monotonic() + 60
        while logs() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not logs()


def test_rates_are_steady_when_the_last_rounds_agree() -> None:
    assert not bench.is_steady([100, 100]), "two rounds are too few"
    assert not bench.is_steady([50, 100, 120])
    assert bench.is_steady([10, 100, 105, 98]), "a first round that was cold does not count"
