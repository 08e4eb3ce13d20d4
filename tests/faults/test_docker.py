"""Containers as nodes: hurt, cut off, removed. With a Docker daemon; what needs none is tested everywhere."""

import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from linearizability.faults.docker_network import GATEWAY, DockerNetwork
from linearizability.targets import docker, open_target
from linearizability.targets.docker import Image, open_image
from linearizability.targets.target import TargetError
from linearizability.workload.cluster import create_topic, look
from tests.waiting import await_true

pytestmark = pytest.mark.xdist_group("docker")
SERVE = "import socket; s = socket.create_server(('0.0.0.0', 7000))\nwhile True: s.accept()[0].sendall(b'x')"


def test_without_docker_there_is_a_reason(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert docker.obstacle() == "docker is not installed (Debian: docker.io)"


def test_without_a_daemon_there_is_a_reason(monkeypatch, tmp_path):
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert docker.obstacle() == "docker version: Cannot connect to the Docker daemon"
    with pytest.raises(TargetError, match="Cannot connect"):
        open_image()


def test_an_image_of_its_own_has_its_own_interpreter():
    image = Image("tidegauge")
    assert image.words() == []
    assert image.command([sys.executable, "-m", "tidegauge"]) == ["python3", "-m", "tidegauge"]


def test_containers_see_jars_outside_of_the_checkout(monkeypatch, tmp_path):
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.mkdir()
    link.symlink_to(kept)
    monkeypatch.setenv("TIDEGAUGE_CACHE", str(link))
    assert str(kept) in docker.own_folders()


@pytest.fixture(scope="module")
def network(in_docker):
    with DockerNetwork(2, open_image()) as network:
        yield network
    assert docker.docker("network", "ls", "--quiet", "--filter", f"name={network.name}") == ""


@pytest.fixture
def node(network, tmp_path):
    folder = tmp_path / "node"
    folder.mkdir()
    process = network.hosts[0].process("a node", folder / "node.log", folder)
    process.command = [sys.executable, "-u", "-c", SERVE]
    process.start()
    yield process
    process.kill()


def answers(address: str) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect((address, 7000))
            return probe.recv(1) == b"x"
        except OSError:
            return False


def becomes(wanted: bool, address: str) -> bool:
    await_true(lambda: answers(address) is wanted, f"{'an' if wanted else 'no'} answer of {address}")
    return True


def test_a_node_is_frozen_killed_and_started_again(network, node):
    address = network.hosts[0].address
    assert becomes(True, address)
    node.pause()
    assert becomes(False, address) and node.running
    node.resume()
    assert becomes(True, address)
    node.kill()
    assert not node.running and becomes(False, address)
    node.start()
    assert becomes(True, address)


def test_a_kill_reaches_a_container_that_is_still_coming(network, node):
    node.kill()
    threading.Thread(target=node.start).start()
    await_true(lambda: node.running, "the start of the container")
    node.kill()
    assert not node.running


def test_a_cut_outlives_the_node_and_heals(network, node):
    address = network.hosts[0].address
    assert becomes(True, address)
    network.cut(1, 0)
    assert becomes(False, address)
    node.kill()
    node.start()
    assert becomes(False, address)
    network.cut(0, 1)
    network.join(1, 0)
    assert not answers(address), "the way from the clients is still cut"
    network.join(0, 1)
    assert becomes(True, address)
    network.cut(1, 2)
    assert answers(address), "another link is another's"
    network.heal()


def test_an_agent_that_cannot_do_it_says_so(network):
    with pytest.raises(TargetError, match="did not do"):
        network._ask(1, {"cut": "no address"})
    network._ask(1, {})
    assert GATEWAY.endswith(".254")


def test_leftovers_of_the_dead_are_removed(network):
    owner = f"{docker.leash.owner().split('/')[0]}/4194999/1"
    docker.docker("network", "create", "--internal", "--label", f"{docker.LABEL}={owner}", "tidegauge-left-over")
    assert docker.remove_leftovers() == ["tidegauge-left-over"]
    assert network.name in docker.docker("network", "ls", "--format", "{{.Name}}")


@pytest.mark.slow
@pytest.mark.kafka
def test_nodes_of_both_kinds_are_one_cluster_in_containers(in_docker, tmp_path):
    """Each is killed, and comes back into sync; so do they after they did not see each other."""
    with (
        DockerNetwork(2, open_image()) as network,
        open_target("mixed:kafka:4.3.1,reference", folder=tmp_path, hosts=network.hosts) as target,
    ):
        create_topic(target.nodes, "t", partitions=2, replication_factor=2, configs={})
        for node in (1, 2):
            target.kill(node)
            target.restart(node)
        for sender, receiver in ((1, 2), (2, 1)):
            network.cut(sender, receiver)
        time.sleep(2)
        network.heal()
        until = time.monotonic() + 120
        while not (view := look(target.nodes, "t")).complete(2) or view.answered != {1, 2}:
            assert time.monotonic() < until, view
            time.sleep(0.5)


def test_a_daemon_of_ours_ends_with_the_run_that_started_it(docker_daemon):
    if not docker_daemon.namespace:
        pytest.skip("the machine has a daemon of its own")
    holds = (
        "from tests.docker_daemon import own_daemon\nwith own_daemon() as made: print(made.host, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        home = Path(run.stdout.readline().strip().removeprefix("unix://")).parent
        assert (home / "data").is_dir()
        run.kill()
    await_true(lambda: not home.exists(), "the end of the daemon")
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{home.name}*"))
    home.with_suffix(".log").unlink()
