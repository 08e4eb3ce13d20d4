"""`tidegauge serve` with a file that is wrong: one clear line on standard error, exit code 3."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:19093",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
}
WRONG = {
    "unknown name of our own": ({"tidegauge.trace.files": "7"}, ["tidegauge.trace.files"]),
    "protection": (
        {"authorizer.class.name": "x.Y"},
        ["authorizer.class.name=x.Y", "StandardAuthorizer alone can be served"],
    ),
    "not a number": ({"num.partitions": "many"}, ["num.partitions", "many"]),
    "out of bounds": ({"num.partitions": "0"}, ["num.partitions", "0"]),
    "no listener": ({"listeners": "127.0.0.1:9092"}, ["listeners", "127.0.0.1:9092"]),
    "unknown role": ({"process.roles": "broker,cook"}, ["process.roles", "cook"]),
    "no such folder can be made": ({"log.dirs": "/proc/tidegauge"}, ["/proc/tidegauge"]),
}


def serve(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegauge", "serve", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def write(folder: Path, properties: dict[str, str]) -> Path:
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert done.returncode == 3, done.stderr
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named(tmp_path: Path, name: str) -> None:
    change, words = WRONG[name]
    assert_refused(serve(write(tmp_path, GOOD | {"log.dirs": str(tmp_path / "data")} | change)), *words)


def test_a_missing_name_is_named(tmp_path: Path) -> None:
    properties = GOOD | {"log.dirs": str(tmp_path / "data")}
    del properties["node.id"]
    assert_refused(serve(write(tmp_path, properties)), "node.id")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert_refused(serve(tmp_path / "nowhere.properties"), "nowhere.properties", "No such file")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        done = serve(write(tmp_path, GOOD | {"log.dirs": str(tmp_path / "data"), "listeners": listeners}))
    assert_refused(done, str(port), "in use")


def test_a_folder_of_another_owner_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "letter.txt").write_text("mine")
    assert_refused(serve(write(tmp_path, GOOD | {"log.dirs": str(data)})), str(data), "neither formatted nor empty")
    assert (data / "letter.txt").read_text() == "mine"
