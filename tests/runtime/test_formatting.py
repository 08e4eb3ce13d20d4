"""The first voters that a folder is formatted with, as kafka-storage does it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from reference.controller.quorum_log import QuorumLog
from reference.protocol.primitives import TimestampMs
from reference.runtime.configuration import ServerConfiguration, check_configuration
from reference.storage.checkpoints import read_meta_properties, text_of_uuid
from reference.storage.log_directory import LogDirectory
from reference.storage.posix_disk import PosixDisk

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"


def configured(folder: Path, **changed: str) -> ServerConfiguration:
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093,other:9093",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
    }
    given |= {name.replace("_", "."): value for name, value in changed.items()}
    (folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return check_configuration(given, "f")


def formatted(folder: Path, *options: str) -> str:
    """Run the command; its standard error."""
    command = [sys.executable, "-m", "tidegauge", "format", str(folder / "server.properties"), "--cluster-id", CLUSTER]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.stderr


def opened(configuration: ServerConfiguration) -> QuorumLog:
    directory = LogDirectory(PosixDisk(), configuration.folder)
    directory.load(TimestampMs(0))
    return QuorumLog(PosixDisk(), directory.metadata_log(TimestampMs(0)), TimestampMs(0), ())


@pytest.mark.process
def test_a_node_alone_is_the_first_voter(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    assert formatted(tmp_path, "--standalone") == ""
    meta = read_meta_properties(PosixDisk(), configuration.folder)
    assert meta is not None
    history = opened(configuration).history
    assert (history.level, history.offset, history.voters.ids) == (1, -1, (1,))
    voter = history.voters.get(configuration.node_id)
    assert voter is not None
    assert voter.directory == meta.directory_id
    assert [(each.listener, each.host, each.port) for each in voter.endpoints] == [("CONTROLLER", "127.0.0.1", 9093)]


@pytest.mark.process
def test_the_first_voters_are_named_with_their_directories(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    ids = [text_of_uuid(UUID(int=number)) for number in (1001, 1002)]
    assert formatted(tmp_path, "--initial-controllers", f"1@127.0.0.1:9093:{ids[0]},2@other:9093:{ids[1]}") == ""
    meta = read_meta_properties(PosixDisk(), configuration.folder)
    assert meta is not None and meta.directory_id == UUID(int=1001)
    voters = opened(configuration).history.voters
    assert [(voter.id, voter.directory.int) for voter in voters] == [(1, 1001), (2, 1002)]


@pytest.mark.process
def test_a_node_that_joins_knows_no_voters(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    assert configuration.other_controllers == [("other", 9093)]
    assert formatted(tmp_path, "--no-initial-controllers") == ""
    assert opened(configuration).history.level == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("changed", "options", "text"),
    [
        ({"controller_quorum_voters": "1@h:1"}, ["--standalone"], "--standalone: controller.quorum.voters is set"),
        (
            {"process_roles": "broker", "listeners": "PLAINTEXT://h:1"},
            ["--standalone"],
            "does not have the role controller",
        ),
        ({"controller_quorum_bootstrap_servers": ""}, ["--no-initial-controllers"], "names no other node"),
        ({}, ["--standalone", "--no-initial-controllers"], "exclude each other"),
        ({}, ["--initial-controllers", "2@h:1:AAAAAAAAAAAAAAAAAAAD6Q"], "does not name node.id 1"),
        (
            {},
            ["--initial-controllers", "1@h:1:AAAAAAAAAAAAAAAAAAAAAQ"],
            "the directory id AAAAAAAAAAAAAAAAAAAAAQ is reserved",
        ),
        ({}, ["--initial-controllers", "1@h:1"], "'1@h:1' is not ID@HOST:PORT:DIRECTORY-ID"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, changed: dict[str, str], options: list[str], text: str) -> None:
    configuration = configured(tmp_path, **changed)
    assert text in formatted(tmp_path, *options)
    assert not configuration.folder.exists()
