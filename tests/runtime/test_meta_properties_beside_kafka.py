"""Damaged `meta.properties` are refused where Apache Kafka 4.3.1 refuses them, and mean the same where both take them up."""

from __future__ import annotations

import contextlib
import logging
import shutil
from pathlib import Path

import pytest

from reference.runtime.configuration import ConfigurationError
from reference.runtime.folders import lock_folders, open_folders
from reference.storage.checkpoints import META_PROPERTIES, MetaProperties, read_meta_properties, text_of_uuid
from reference.storage.posix_disk import PosixDisk
from tests.kafka_classes import answers_of
from tests.runtime.test_folders import configured

SOURCE = Path(__file__).parent / "java" / "Metas.java"
CLUSTER, DIRECTORY = "MkU3OEVBNTcwNTJENDM2Qg", "VcDGZ8wSTIugXH2pC9OVlQ"
WHOLE = f"#\n#Sun Nov 29 20:00:00 UTC 2026\nnode.id=1\ndirectory.id={DIRECTORY}\nversion=1\ncluster.id={CLUSTER}\n"
LINES = WHOLE.splitlines(keepends=True)


def with_directory(id: str) -> str:
    return WHOLE.replace(DIRECTORY, id)


DAMAGED: dict[str, str | None] = {
    "whole": WHOLE,
    "missing": None,
    "empty": "",
    "garbage": "garbage\x00\x01",
    "carriage returns": WHOLE.replace("\n", "\r\n"),
    "spaces": WHOLE.replace("=", " = "),
    "byte order mark": "\ufeff" + WHOLE,
    "no version": WHOLE.replace(LINES[4], ""),
    "version 0": WHOLE.replace("version=1", "version=0"),
    "version 2": WHOLE.replace("version=1", "version=2"),
    "no number for a version": WHOLE.replace("version=1", "version=x"),
    "no cluster": WHOLE.replace(LINES[5], ""),
    "cut within the cluster": WHOLE[:-12],
    "cut before the cluster": "".join(LINES[:5]),
    "cut within a name": WHOLE[:45],
    "no node": WHOLE.replace(LINES[2], ""),
    "another node": WHOLE.replace("node.id=1", "node.id=2"),
    "a negative node": WHOLE.replace("node.id=1", "node.id=-1"),
    "a word for a node": WHOLE.replace("node.id=1", "node.id=x"),
    "a node of version 0": WHOLE.replace("node.id", "broker.id"),
    "two nodes": WHOLE + "node.id=2\n",
    "two clusters": WHOLE + "cluster.id=AAAAAAAAAAAAAAAAAAAAAA\n",
    "no directory": WHOLE.replace(LINES[3], ""),
    "an empty directory": with_directory(""),
    "a short directory": with_directory("zzz"),
    "a directory that is unassigned": with_directory("A" * 22),
    "a directory that is lost": with_directory("A" * 21 + "Q"),
    "a directory that migrates": with_directory("A" * 21 + "g"),
    "another directory": with_directory("VcDGZ8wSTIugXH2pC9OVlg"),
}
REFUSED_HERE = {
    "version 0 of a broker": WHOLE.replace("version=1", "version=0").replace("node.id", "broker.id"),
    "colons": WHOLE.replace("=", ":"),
    "tabs": WHOLE.replace("=", "\t"),
    "a line that goes on": WHOLE.replace("node.id=1", "node.id=\\\n1"),
}
"""What Kafka reads and never writes, but for version 0, which brokers beside a ZooKeeper wrote: they are refused by name."""


def opened(folder: Path) -> dict[str, str]:
    """The ids that the reference reads or makes for a log directory, or its refusal."""
    try:
        with contextlib.ExitStack() as locks:
            configuration = configured(folder.parent, folder.name)
            cluster_id, found = open_folders(
                configuration, lock_folders(configuration, locks), logging.getLogger("tests")
            )
    except ConfigurationError as error:
        assert folder.name in str(error)
        return {"refused": str(error)}
    meta = found[folder]
    assert isinstance(meta, MetaProperties) and meta == read_meta_properties(PosixDisk(), folder)
    return {"cluster": cluster_id, "directory": text_of_uuid(meta.directory_id)}


@pytest.mark.java
def test_they_are_taken_up_as_by_kafka(tmp_path: Path) -> None:
    cases = DAMAGED | REFUSED_HERE
    folders = {name: (tmp_path / "ours" / str(at), tmp_path / "kafkas" / str(at)) for at, name in enumerate(cases)}
    for name, (own, other) in folders.items():
        (own / "t-0").mkdir(parents=True)
        (own / "t-0" / "00000000000000000000.log").touch()
        if (text := cases[name]) is not None:
            (own / META_PROPERTIES).write_bytes(text.encode())
        shutil.copytree(own, other)
    ours = {name: opened(own) for name, (own, _) in folders.items()}
    kafkas = dict(zip(folders, answers_of(SOURCE, (str(other) for _, other in folders.values())), strict=True))
    assert {name for name in cases if "refused" in ours[name] and "refused" not in kafkas[name]} == {*REFUSED_HERE}
    assert not {name for name in cases if "refused" in kafkas[name] and "refused" not in ours[name]}
    made = ours["no directory"].pop("directory"), kafkas["no directory"].pop("directory")
    assert len({*made, DIRECTORY, "A" * 22}) == 4, "each makes one"
    assert [name for name in DAMAGED if "refused" not in ours[name] and ours[name] != kafkas[name]] == []
    assert sum("refused" not in each for each in ours.values()) >= 8
