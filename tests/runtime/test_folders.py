"""The folders of log.dirs and metadata.log.dir: formatted, locked, checked before a node starts on them."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

from reference.runtime.configuration import ConfigurationError, ServerConfiguration, check_configuration
from reference.runtime.folders import format_folders, lock_folders, log_manager, new_cluster_id, open_folders
from reference.storage.checkpoints import META_PROPERTIES, read_meta_properties, write_meta_properties
from reference.storage.log_manager import LogManager
from reference.storage.posix_disk import PosixDisk
from tests.runtime.test_configuration import GOOD

LOGGER = logging.getLogger("tests.folders")
ID = new_cluster_id()


def configured(folder: Path, log_dirs: str = "a,b", **properties: str) -> ServerConfiguration:
    paths = ",".join(str(folder / each) for each in log_dirs.split(","))
    return check_configuration(GOOD | {"log.dirs": paths} | properties, "f")


def opened(configuration: ServerConfiguration) -> LogManager:
    with contextlib.ExitStack() as locks:
        _, folders = open_folders(configuration, lock_folders(configuration, locks), LOGGER)
        return log_manager(configuration, folders, lambda level, text: None)


def test_new_folders_of_a_node_alone_are_formatted_each_with_an_id_of_its_own(tmp_path: Path) -> None:
    logs = opened(configured(tmp_path))
    assert [each.folder.name for each in logs.directories] == ["a", "b"]
    assert logs.metadata is logs.directories[0] and len({each.id for each in logs.directories}) == 2
    assert [each.id for each in opened(configured(tmp_path)).directories] == [each.id for each in logs.directories]


def test_the_metadata_log_may_have_a_folder_of_its_own(tmp_path: Path) -> None:
    logs = opened(configured(tmp_path, **{"metadata.log.dir": str(tmp_path / "m")}))
    assert logs.metadata.folder == tmp_path / "m" and logs.metadata not in logs.directories


def test_formatting_leaves_what_is_formatted_where_that_is_ignored(tmp_path: Path) -> None:
    format_folders(configured(tmp_path, "a"), ID, ignore_formatted=False)
    before = (tmp_path / "a" / META_PROPERTIES).read_bytes()
    with pytest.raises(ConfigurationError, match="a is already formatted"):
        format_folders(configured(tmp_path), ID, ignore_formatted=False)
    assert not (tmp_path / "b" / META_PROPERTIES).exists()
    format_folders(configured(tmp_path), ID, ignore_formatted=True)
    assert (tmp_path / "a" / META_PROPERTIES).read_bytes() == before and (tmp_path / "b" / META_PROPERTIES).exists()


def test_a_folder_that_cannot_be_read_is_offline_unless_it_is_that_of_the_metadata_log(tmp_path: Path) -> None:
    opened(configured(tmp_path))
    (tmp_path / "b" / META_PROPERTIES).write_text("rubbish")
    logs = opened(configured(tmp_path))
    assert [each.folder.name for each in logs.live] == ["a"]
    with pytest.raises(ConfigurationError, match=META_PROPERTIES):
        opened(configured(tmp_path, "b,a"))
    (tmp_path / "file").write_text("no folder")
    assert [each.folder.name for each in opened(configured(tmp_path, "a,file/c")).live] == ["a"]


def test_what_does_not_belong_together_is_refused_by_name(tmp_path: Path) -> None:
    opened(configured(tmp_path, "a"))
    with pytest.raises(ConfigurationError, match="b is not formatted"):
        opened(configured(tmp_path))
    meta = read_meta_properties(PosixDisk(), tmp_path / "a")
    assert meta is not None
    write_meta_properties(PosixDisk(), tmp_path / "b", meta)
    with pytest.raises(ConfigurationError, match=r"have the same directory\.id"):
        opened(configured(tmp_path))
    write_meta_properties(PosixDisk(), tmp_path / "b", meta._replace(cluster_id=ID))
    with pytest.raises(ConfigurationError, match="b belongs to cluster"):
        opened(configured(tmp_path))
    write_meta_properties(PosixDisk(), tmp_path / "b", meta._replace(node_id=7))
    with pytest.raises(ConfigurationError, match="b belongs to node 7"):
        opened(configured(tmp_path))
    (tmp_path / "c").symlink_to(tmp_path / "a")
    with pytest.raises(ConfigurationError, match=r"names .*c twice"):
        opened(configured(tmp_path, "a,c"))


def test_a_second_process_finds_any_of_them_in_use(tmp_path: Path) -> None:
    with contextlib.ExitStack() as locks, contextlib.ExitStack() as others:
        lock_folders(configured(tmp_path), locks)
        with pytest.raises(ConfigurationError, match="b is in use"):
            lock_folders(configured(tmp_path, "c,b"), others)
