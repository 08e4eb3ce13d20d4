"""Power, disk and clock of a real process: a broker of the reference, its data folder, what it answers."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linearizability.client.requests import list_offsets_request, produce_request, produced
from linearizability.faults import all_faults
from linearizability.faults.backend import interpose
from linearizability.faults.fault import FAULTS, World, select
from linearizability.faults.injection import Injection
from linearizability.faults.machine import SKEW_S
from linearizability.faults.plan import Plan
from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.interposer import building
from linearizability.targets.target import HookMissing, TargetError
from linearizability.targets.wire import Wire, WireError
from linearizability.workload.cluster import create_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import FIRST_OFFSET, TimestampMs
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record

TOPIC = "hurt"
WITHIN_S = 60
EARLIEST, LATEST = -2, -1
NAMED_V = 12
PICKS = {"all is lost": 0.0, "some is kept": 0.1}
"""0.1 × 7919 = 791.9: nine tenths of what was appended are kept."""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    reason = building.obstacle()
    if reason:
        pytest.skip(reason)
    target = open_target("reference:1", folder=tmp_path_factory.mktemp("hurt"))
    assert isinstance(target, ClusterTarget)
    target.interpose()
    with target:
        create_topic(target.nodes, TOPIC, partitions=1, replication_factor=1, configs={})
        yield World(target, TOPIC)


def call(world: World, request: Any, version: int | None = None) -> Any:
    node = world.nodes[0]
    with Wire.connect(node.host, node.port) as wire:
        return wire.call(request, version)


def produce(world: World, text: str = "record", at_ms: int | None = None) -> int:
    """Send one record with acks=all; the broker's error code."""
    now = TimestampMs(int(time.time() * 1000) if at_ms is None else at_ms)
    batch = build([Record(FIRST_OFFSET, now, None, text.encode())])
    return produced(call(world, produce_request({(TOPIC, 0): batch}, timeout_ms=5000), NAMED_V)).error_code


def end_offset(world: World) -> int:
    return call(world, list_offsets_request({(TOPIC, 0): LATEST})).topics[0].partitions[0].offset


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN_S
    while True:
        try:
            if holds():
                return
        except WireError:
            pass  # the broker is on its way
        assert time.monotonic() < end, f"not within {WITHIN_S} s"
        time.sleep(0.1)


def injection(world: World, name: str, pick: float = 0.0) -> dict[str, Any]:
    done = all_faults()[name].begin(world, Injection(at_s=0, fault=name, pick=pick))
    assert done is not None
    return json.loads(json.dumps(done))  # as it stands in the history


def refused(world: World, text: str) -> bool:
    """Whether a record is refused, or the node has ended before it could answer: the first error of its disk ends it."""
    try:
        return produce(world, text) == ErrorCode.KAFKA_STORAGE_ERROR
    except WireError:
        return True


def ended(world: World) -> bool:
    return not world.target.running(1)


def test_a_disk_that_is_full_ends_the_node_until_it_is_mended(world):
    until(lambda: produce(world) == ErrorCode.NONE)
    done = injection(world, "disk-full")
    assert done == {"node": 1, "bytes_left": 1}
    assert refused(world, "too much")
    until(lambda: ended(world))
    FAULTS["disk-full"].end(world, done)
    assert world.sick == set()
    until(lambda: produce(world, "it fits again") == ErrorCode.NONE)


def test_a_disk_that_is_broken_ends_the_node_until_it_is_mended(world):
    done = injection(world, "disk-broken")
    assert refused(world, "no place")
    until(lambda: ended(world))
    assert FAULTS["disk-broken"].begin(world, Injection(at_s=0, fault="disk-broken")) is None
    FAULTS["disk-broken"].end(world, done)
    until(lambda: produce(world, "it holds again") == ErrorCode.NONE)


def test_a_clock_that_is_wrong_judges_by_what_it_shows(world):
    """A record of now is too far ahead for a broker whose clock is an hour and more behind (KIP-937).

    The reference takes the wall clock as it is when it starts; later it follows a jump little by little.
    """
    assert SKEW_S[1] < 3600
    for seconds, answer in ((-4000, ErrorCode.INVALID_TIMESTAMP), (0, ErrorCode.NONE)):
        world.set_clock(1, seconds)
        assert world.wrong_clocks == ({1} if seconds else set())
        world.target.restart(1)
        until(lambda answer=answer: produce(world) == answer)


def test_clocks_are_put_ahead_and_back_and_right(world):
    ways = set()
    for pick in (0.0, 0.2, 0.5, 0.7):
        done = injection(world, "clock-skew", pick)
        ways.add(done["seconds"] > 0)
        assert SKEW_S[0] <= abs(done["seconds"]) <= SKEW_S[1] and world.wrong_clocks == {1}
        FAULTS["clock-skew"].end(world, done)
        assert world.wrong_clocks == set()
    assert ways == {True, False}


@pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)
def test_a_loss_of_power_takes_what_was_not_flushed(world, pick):
    for number in range(20):
        until(lambda number=number: produce(world, f"record {number}") == ErrorCode.NONE)
    before = end_offset(world)
    log = next((Path(world.target.describe()["folders"][0]) / "data").glob(f"{TOPIC}-0/*.log"))
    size = log.stat().st_size
    done = injection(world, "power-loss", pick)
    kept = log.stat().st_size
    assert kept < size and (kept > size / 2) == bool(done["kept"])
    assert world.robbed == {1} and not world.target.running(1)
    FAULTS["power-loss"].end(world, done)
    until(lambda: produce(world, "after the loss") == ErrorCode.NONE)
    assert end_offset(world) <= before
    world.trust()


def test_a_kill_alone_takes_nothing(world):
    until(lambda: produce(world) == ErrorCode.NONE)
    before = end_offset(world)
    done = injection(world, "kill")
    FAULTS["kill"].end(world, done)
    until(lambda: end_offset(world) == before)


def plan(*faults: str) -> Plan:
    return Plan(target="reference:3", minutes=1, seed=1, faults=list(faults))


def test_nodes_are_interposed_where_a_fault_asks_for_it(tmp_path):
    said: list[str] = []
    for faults, hurt in [((), True), (("kill", "disk-full"), True), (("kill", "pause"), False), (("none",), False)]:
        target = open_target("reference:3", folder=tmp_path)
        interpose(target, plan(*faults), (), said.append)
        assert ("disk" in target.hooks, "clock" in target.hooks) == (hurt, hurt)
    assert said == []
    with pytest.raises(HookMissing, match="power-loss"):
        target.require("power-loss")


def test_without_a_compiler_the_faults_are_left_out_or_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    target = open_target("reference:3", folder=tmp_path)
    said: list[str] = []
    interpose(target, plan(), (), said.append)
    (sentence,) = said
    assert "power-loss" in sentence and "clock-skew" in sentence and "apt-get install gcc" in sentence
    assert "disk" not in target.hooks
    with pytest.raises(TargetError, match="there is no C compiler"):
        interpose(target, plan("clock-skew"), (), said.append)
    with pytest.raises(TargetError, match="the fault power-loss needs the hook power-loss"):
        select(["power-loss"], target, None)


def test_a_node_without_its_interposer_gets_no_fault(tmp_path):
    """A container of another C library starts the broker and skips the library."""
    target = open_target("reference:1", folder=tmp_path)
    assert isinstance(target, ClusterTarget)
    target.interpose()
    tmp_path.joinpath("target").mkdir()
    target.lay_out(tmp_path / "target")
    with pytest.raises(TargetError, match="runs without its interposer: clock would act on no process"):
        target.clock(1, 5)
