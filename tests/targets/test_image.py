"""The container image, made by `make image` or from wheels that other tests use as well: it judges a broker, serves the cluster of compose.yaml, and hosts a hunt's nodes."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets.docker import docker
from linearizability.targets.target import TargetError
from tests.docker_daemon import Daemon
from tests.targets.root_image import root_file_system

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.sampled(days=5, together=True)]

REPOSITORY = Path(__file__).resolve().parents[2]
CONTAINER = REPOSITORY / "linearizability" / "targets" / "container"
BASE, NAME = "tidegauge-test-base:1", "tidegauge-test"
IMAGE, WITH_JAVA, WITH_EXTRAS = f"{NAME}:1", f"{NAME}:java", f"{NAME}:extras"
BUILT_WITHIN_S = 600
HEALTHY_WITHIN_S = 300
CONNECTS = "python3 -c 'import socket; socket.create_connection((\"broker\", 9092))'"


@pytest.fixture(scope="module")
def base(docker_daemon: Daemon) -> Iterator[dict[str, str]]:
    """The environment of a builder whose daemon has an image to start from, for there may be no registry."""
    environment = os.environ | ({"DOCKER_HOST": docker_daemon.host} if docker_daemon.host else {})
    words = ["docker", "import", "--change", "ENV PATH=/usr/local/bin:/usr/bin", "-", BASE]
    subprocess.run(words, input=root_file_system(), env=environment, capture_output=True, check=True)
    yield environment
    with docker_daemon.entered(), suppress(TargetError):
        docker("rmi", "--force", BASE, IMAGE, WITH_JAVA, WITH_EXTRAS)


def build(target: str, image: str, environment: dict[str, str], folder: Path, *words: str) -> None:
    """Not in the daemon's network namespace: wheels come from where this environment's came from."""
    command = ["make", target, f"BASE_IMAGE={BASE}", f"IMAGE={image}", f"IMAGE_FOLDER={folder}", *words]
    built = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=BUILT_WITHIN_S
    )
    assert built.returncode == 0, built.stdout + built.stderr


@pytest.fixture(scope="module")
def context(base: dict[str, str], wheels: Path) -> Path:
    """The folder from which an image without extras was built: they are 400 MB, and none is needed to judge."""
    build("image-of-wheels", IMAGE, base, wheels, "EXTRAS=")
    return wheels


@pytest.fixture(scope="module")
def image(context: Path, in_docker: None) -> str:
    return IMAGE


@pytest.fixture
def network(image: str) -> Iterator[str]:
    """A network without a way out, which is removed with what is on it."""
    docker("network", "create", "--internal", NAME)
    yield NAME
    for container in docker("ps", "--all", "--quiet", "--filter", f"network={NAME}").split():
        docker("rm", "--force", "--volumes", container)
    docker("network", "rm", NAME)


def await_health(container: str) -> None:
    until = time.monotonic() + HEALTHY_WITHIN_S
    while docker("inspect", "--format", "{{.State.Health.Status}}", container) != "healthy":
        assert time.monotonic() < until, docker("logs", container)
        time.sleep(0.2)


def judged(network: str, *words: str) -> dict[str, Any]:
    """The summary of a run in a container on the network, which passes."""
    command = ["docker", "run", "--rm", "--network", network, *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILT_WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_not_root_and_has_all_packages(image: str) -> None:
    assert docker("run", "--rm", image, "--version").startswith("tidegauge ")
    code = "import os, conformance, linearizability, reference, spec, jinja2, scramp; print(os.getuid())"
    assert docker("run", "--rm", "--entrypoint", "python3", image, "-c", code) == "10001"


def test_it_judges_a_broker_in_another_container(image: str, network: str, tmp_path: Path) -> None:
    own = (
        "node.id=1", "controller.quorum.voters=1@broker:9093", "advertised.listeners=PLAINTEXT://broker:9092",
        "offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    )  # fmt: skip
    docker(
        "run",
        "--detach",
        "--name",
        "broker",
        "--hostname",
        "broker",
        "--network",
        network,
        "--volume",
        f"{CONTAINER}/node.properties:/node.properties:ro",
        "--health-cmd",
        CONNECTS,
        "--health-interval",
        "1s",
        image,
        "serve",
        "/node.properties",
        *(word for line in own for word in ("--set", line)),
    )
    results = tmp_path / "results"
    results.mkdir()
    user = ("--user", f"{os.getuid()}:{os.getgid()}", "--volume", f"{results}:/work/results")
    await_health("broker")
    words = ("run", "BAS-01", "PRD-05", "--target", "addr:broker:9092")
    assert judged(network, *user, image, *words)["must"]["pass"] == 2
    assert list(results.glob("*/report.html"))


def test_java_is_installed_where_its_package_is_named(context: Path, image: str) -> None:
    given = (f"BASE_IMAGE={BASE}", "EXTRAS=", "JAVA_PACKAGE=default-jre-headless")
    arguments = [word for each in given for word in ("--build-arg", each)]
    docker("build", "--tag", WITH_JAVA, "--file", f"{CONTAINER}/Dockerfile", *arguments, str(context))
    reads = ("-c", "print(open('/apt-get').read())")
    asked = docker("run", "--rm", "--entrypoint", "python3", WITH_JAVA, *reads).splitlines()
    assert asked == ["update -q", "install -q -y --no-install-recommends default-jre-headless"]
    with pytest.raises(TargetError, match="No such file"):
        docker("run", "--rm", "--entrypoint", "python3", image, *reads)


def compose() -> list[str]:
    """The program that runs compose.yaml: the client's plugin, or one by itself."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("Docker Compose is missing: apt-get install docker-compose")


def test_the_cluster_of_compose_is_judged(image: str) -> None:
    words = [*compose(), "-p", NAME, "-f", f"{CONTAINER}/compose.yaml"]
    environment = os.environ | {"IMAGE": image}
    try:
        started = subprocess.run([*words, "up", "-d"], env=environment, capture_output=True, text=True)
        assert started.returncode == 0, started.stderr
        for container in docker("ps", "--quiet", "--filter", f"network={NAME}_default").split():
            await_health(container)
        words_of_run = ("run", "BAS-14", "PRD-05", "--target", "addr:node-1:9092")
        assert judged(f"{NAME}_default", image, *words_of_run)["must"]["not_judged"] == 0
    finally:
        subprocess.run([*words, "down", "-v", "-t", "0"], env=environment, capture_output=True, check=True)


@pytest.mark.slow
def test_its_nodes_are_hunted(base: dict[str, str], docker_daemon: Daemon, tmp_path: Path) -> None:
    build("image", WITH_EXTRAS, base, tmp_path / "image")
    where = ("--target", "reference:3", "--backend", "docker", "--image", WITH_EXTRAS, "--results", str(tmp_path))
    how = ("--minutes", "0.1", "--faults", "isolate", "--engine", "local", "--json")
    with docker_daemon.entered():
        hunted = subprocess.run(
            [sys.executable, "-m", "tidegauge", "hunt", *where, *how], capture_output=True, text=True
        )
    assert hunted.returncode == 0, hunted.stdout + hunted.stderr
    assert json.loads(hunted.stdout.splitlines()[-1])["faults"]["isolate"] > 0
