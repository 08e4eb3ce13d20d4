"""The broker as a process: one line for what is wrong, a clean end, a lock, metrics."""

import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Never

import pytest
from prometheus_client.parser import text_string_to_metric_families

from linearizability.bench.load import LoadConnection
from linearizability.targets.ports import free_ports
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.runtime import process
from reference.runtime.configuration import ConfigurationError, load_configuration

WITHIN_S = 30


def write_config(folder: Path, **changes: str) -> Path:
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    path = folder / f"server-{len(list(folder.glob('server-*')))}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


class Broker:
    """A broker process, and its log."""

    def __init__(self, config: Path) -> None:
        self.log = config.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "tidegauge", "serve", str(config)], stderr=log)

    def wait_for(self, sentence: str) -> str:
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            for line in self.log.read_text().splitlines():
                if sentence in line:
                    return line
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"{sentence!r} was not said:\n{self.log.read_text()}")

    @property
    def port(self) -> int:
        return int(self.wait_for("listening on PLAINTEXT").rpartition(":")[2])

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WITHIN_S)


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    started: list[Broker] = []
    yield started
    for broker in started:
        broker.end()


def refused(config: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", "serve", str(config)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_new_folder_is_formatted_served_and_ended_cleanly(tmp_path: Path, brokers: list[Broker]) -> None:
    broker = Broker(write_config(tmp_path, zookeeper_connect="z"))
    brokers.append(broker)
    broker.wait_for("WARNING unknown configuration name 'zookeeper.connect'")
    answer = LoadConnection("127.0.0.1", broker.port).call(
        18, 3, ApiVersionsRequest(client_software_name="t", client_software_version="1")
    )
    assert answer.error_code == 0 and len(answer.api_keys) > 20
    broker.wait_for("formatted")
    broker.wait_for("open files are allowed")
    assert broker.end() == 0
    assert (tmp_path / "data" / "meta.properties").exists()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_no_client_connects_before_the_folder_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that listens is treated as started, and may be killed at once: its folder must be formatted and open by then."""
    (port,) = free_ports(1)
    config = write_config(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0")

    def open_folders(*_: object) -> Never:
        with socket.socket() as taken, pytest.raises(OSError, match="in use"):
            taken.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), WITHIN_S)
        raise ConfigurationError("seen")

    monkeypatch.setattr(process, "open_folders", open_folders)
    with pytest.raises(ConfigurationError, match="seen"):
        process.run_broker(load_configuration(config))


def test_a_folder_of_a_process_that_was_killed_as_it_formatted_is_formatted(
    tmp_path: Path, brokers: list[Broker]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".lock").touch()
    (tmp_path / "data" / "meta.properties.tmp").write_text("#\ncluster.")
    brokers.append(Broker(write_config(tmp_path)))
    brokers[0].wait_for("listening on PLAINTEXT")
    assert [*map(str, (tmp_path / "data").glob("meta.properties*"))] == [str(tmp_path / "data" / "meta.properties")]


def test_two_folders_of_which_a_killed_process_formatted_one_are_formatted(
    tmp_path: Path, brokers: list[Broker]
) -> None:
    """The metadata log's folder is the last: a formatted one beside an empty one of data may be a disk that was replaced."""
    both = {"log.dirs": f"{tmp_path}/data,{tmp_path}/more"}
    config = write_config(tmp_path, **both)
    brokers.append(Broker(config))
    brokers[0].wait_for("listening on PLAINTEXT")
    brokers[0].end()
    shutil.rmtree(tmp_path / "data")
    assert "data is not formatted" in refused(config)  # the other one has partitions
    for path in (tmp_path / "more").iterdir():
        if path.name != "meta.properties":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "more belongs to node 1, but node.id is 2" in refused(write_config(tmp_path, **both, **{"node.id": "2"}))
    brokers.append(Broker(config))
    brokers[1].wait_for("listening on PLAINTEXT")
    found = [(tmp_path / name / "meta.properties").read_text().splitlines()[1] for name in ("data", "more")]
    assert found[0] == found[1]


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("seed", range(6))
def test_a_first_start_that_is_killed_at_any_time_is_followed_by_one_that_serves(
    tmp_path: Path, brokers: list[Broker], seed: int
) -> None:
    chance = Random(seed)
    config = write_config(
        tmp_path, **{"log.dirs": ",".join(f"{tmp_path}/{name}" for name in ("data", "more")[: 1 + seed % 2])}
    )
    for _ in range(4):
        broker = Broker(config)
        brokers.append(broker)
        until = time.monotonic() + WITHIN_S
        while not (tmp_path / "data").exists() and time.monotonic() < until:
            time.sleep(0.0005)
        time.sleep(chance.random() * chance.choice((0.0, 0.003, 0.01, 0.03, 0.1)))
        broker.process.kill()
        broker.process.wait(WITHIN_S)
    brokers.append(Broker(config))
    brokers[-1].wait_for("listening on PLAINTEXT")


def test_a_second_process_does_not_touch_the_folder(tmp_path: Path, brokers: list[Broker]) -> None:
    config = write_config(tmp_path)
    brokers.append(Broker(config))
    brokers[0].wait_for("listening on PLAINTEXT")
    assert refused(write_config(tmp_path)).endswith("data is in use by another process")


def test_wrong_files_and_folders_are_named_in_one_line(tmp_path: Path) -> None:
    assert "Invalid value x" in refused(write_config(tmp_path, **{"node.id": "x"}))
    assert "No such file" in refused(tmp_path / "missing.properties")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious.txt").write_text("x")
    assert "neither formatted nor empty" in refused(write_config(tmp_path))


def test_a_folder_of_another_node_is_refused(tmp_path: Path, brokers: list[Broker]) -> None:
    brokers.append(Broker(write_config(tmp_path)))
    brokers[0].wait_for("listening on PLAINTEXT")
    brokers[0].end()
    assert "belongs to node 1, but node.id is 2" in refused(write_config(tmp_path, **{"node.id": "2"}))


def test_an_address_in_use_is_named(tmp_path: Path, brokers: list[Broker]) -> None:
    brokers.append(Broker(write_config(tmp_path)))
    taken = f"PLAINTEXT://127.0.0.1:{brokers[0].port},CONTROLLER://127.0.0.1:0"
    other = tmp_path / "other"
    other.mkdir()
    assert "cannot be bound: Address already in use" in refused(write_config(other, listeners=taken))


@pytest.mark.parametrize("listener", ["nowhere", "127.0.0.1:65536", "127.0.0.1:", "::1:9999"])
def test_a_metrics_listener_that_is_no_address_is_named(tmp_path: Path, listener: str) -> None:
    said = refused(write_config(tmp_path, **{"tidegauge.metrics.listener": listener}))
    assert f"tidegauge.metrics.listener: '{listener}' is not HOST:PORT" in said


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid", "nowhere..invalid", "x" * 64 + ".invalid"])
def test_a_metrics_listener_that_cannot_be_bound_is_named(tmp_path: Path, host: str) -> None:
    said = refused(write_config(tmp_path, **{"tidegauge.metrics.listener": f"{host}:9999"}))
    assert said.startswith(f"tidegauge.metrics.listener: {host}:9999 cannot be bound: ")


def test_a_metrics_listener_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(write_config(tmp_path, **{"tidegauge.metrics.listener": f":{port}"}))
    assert said == f"tidegauge.metrics.listener: 127.0.0.1:{port} cannot be bound: Address already in use"


def test_metrics_are_served_when_asked_for(tmp_path: Path, brokers: list[Broker]) -> None:
    broker = Broker(
        write_config(tmp_path, **{"tidegauge.metrics.listener": "127.0.0.1:0", "tidegauge.log.format": "json"})
    )
    brokers.append(broker)
    line = broker.wait_for("metrics at")
    url = line[line.index("http://") :].split('"')[0].strip()
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        text = answer.read().decode()
    samples = {each.name: each.value for family in text_string_to_metric_families(text) for each in family.samples}
    assert samples["tidegauge_requests_total"] == samples["tidegauge_connections"] == 0


def test_format_gives_the_cluster_its_id_once(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    command = [sys.executable, "-m", "tidegauge", "format", str(config)]
    first = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=True)
    assert len(first.stdout.strip()) == 22
    again = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert again.returncode == 3
    same = subprocess.run(
        [*command, "--cluster-id", first.stdout.strip(), "--ignore-formatted"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (same.returncode, same.stdout) == (0, first.stdout)


def test_serving_loads_no_analysis_library() -> None:
    source = "import sys, reference.commands, reference.runtime.process\nprint([m for m in ('numpy', 'pandas', 'pyspark', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=WITHIN_S, check=True)
    assert done.stdout.strip() == "[]"
