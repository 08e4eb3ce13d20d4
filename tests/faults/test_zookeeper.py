"""ZooKeeper as the victim: its links are cut and come back; its process is killed and frozen, and serves again."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from linearizability.faults import all_faults
from linearizability.faults.fault import World, select
from linearizability.faults.injection import Injection
from linearizability.targets import open_target
from linearizability.targets.reference import ZooKeeperReferenceCluster
from linearizability.targets.target import TargetError
from linearizability.targets.zookeeper import ZooKeeper, zookeeper_program
from tests.faults.test_cuts import Links, both, injection, world

ZOOKEEPER_PLACE = 4


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        ("zookeeper-cut", both((2, ZOOKEEPER_PLACE))),
        ("zookeeper-isolate", both(*((node, ZOOKEEPER_PLACE) for node in (1, 2, 3)))),
    ],
)
def test_its_links_alone_are_cut_and_come_back(name, apart, monkeypatch):
    hurt = world(monkeypatch, 3, [2], services=1)
    links = hurt.network
    assert isinstance(links, Links)
    done = all_faults()[name].begin(hurt, injection(name))
    assert done is not None and links.apart == apart
    all_faults()[name].end(hurt, done)
    assert links.apart == set()


def test_a_cluster_without_one_has_none_of_its_faults(monkeypatch):
    hurt = world(monkeypatch, 3, [1], controller=1)
    with pytest.raises(TargetError, match="the fault zookeeper-kill needs a ZooKeeper beside the nodes"):
        select(["zookeeper-kill"], hurt.target, hurt.network)
    assert not any(name.startswith("zookeeper") for name in select([], hurt.target, hurt.network))


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[World]:
    """A cluster of which ZooKeeper alone runs."""
    target = open_target("reference-zk:3", folder=tmp_path)
    assert isinstance(target, ZooKeeperReferenceCluster)
    target.zookeeper.lay_out(tmp_path, *zookeeper_program())
    target.zookeeper.start()
    yield World(target, "t")
    target.zookeeper.kill()


def answers(zookeeper: ZooKeeper, within_s: float) -> bool:
    """Whether ZooKeeper answers a request for a session. While it starts it may close the connection, or not answer."""
    until = time.monotonic() + within_s
    while not _answers_once(zookeeper, min(within_s, 1)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _answers_once(zookeeper: ZooKeeper, within_s: float) -> bool:
    body = bytes(4 + 8) + (10_000).to_bytes(4, "big") + bytes(8) + (16).to_bytes(4, "big") + bytes(16)
    try:
        with socket.create_connection((zookeeper.host.address, zookeeper.port), within_s) as connection:
            connection.settimeout(within_s)
            connection.sendall(len(body).to_bytes(4, "big") + body)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


@pytest.mark.kafka
@pytest.mark.parametrize("name", ["zookeeper-kill", "zookeeper-pause"])
def test_its_process_ends_or_stands_still_and_serves_again(name: str, attacked: World) -> None:
    target = attacked.target
    assert isinstance(target, ZooKeeperReferenceCluster) and answers(target.zookeeper, 20)
    done = all_faults()[name].begin(attacked, Injection(at_s=0, fault=name))
    assert done is not None and not answers(target.zookeeper, 0.5)
    all_faults()[name].end(attacked, done)
    assert answers(target.zookeeper, 20)
