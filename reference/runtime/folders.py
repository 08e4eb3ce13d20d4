"""The folders of a node's log directories: formatted, checked, locked, and offline where they cannot be read.

Each has `meta.properties` with the same cluster and node and an id of its own. The one of the metadata log must be readable; a
node starts without others that are not, as Apache Kafka does (MetaPropertiesEnsemble, KafkaRaftServer.initializeLogDirs).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from threading import Barrier

from reference.controller.quorum_snapshots import format_voters, write_bootstrap
from reference.controller.quorum_voters import LEVELS, Entry, voter_records
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.protocol.primitives import NO_OFFSET, NO_UUID, TimestampMs
from reference.runtime.configuration import ConfigurationError, ServerConfiguration
from reference.runtime.descriptors import MOST_OPEN, Shares
from reference.runtime.formatting import FirstVoters
from reference.storage.checkpoints import META_PROPERTIES, MetaProperties, read_meta_properties, write_meta_properties
from reference.storage.disk import TEMPORARY
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log_directory import METADATA_TOPIC, LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.making_durable import Act, run_in_turn
from reference.storage.posix_disk import PosixDisk

LOCK_FILE = ".lock"
METADATA_FOLDER = f"{METADATA_TOPIC}-0"

MOST_FLUSHES = 16
"""How many files of a disk are flushed side by side, at a clean end."""

Unreadable = OSError


def new_cluster_id() -> str:
    """16 random bytes in url-safe base64 without padding; never with a leading dash, which tools would take for a flag."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def validate_cluster_id(text: str) -> str:
    """Check a cluster id. Errors: ConfigurationError when it is not 16 bytes of url-safe base64."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raw = b""
    if len(raw) != 16:
        raise ConfigurationError(f"cluster id '{text}' is not 16 bytes in url-safe base64 (22 characters)")
    return text


def format_folders(
    configuration: ServerConfiguration,
    cluster_id: str,
    *,
    ignore_formatted: bool,
    first: FirstVoters | None = None,
    credentials: Sequence[UserScramCredentialRecord] = (),
) -> None:
    """Format the folders for this node, the metadata log's last; formatted ones are not changed.

    `first` are the first voters; None where the configuration names them. A new cluster begins with the credentials that
    its first active controller was formatted with (KIP-900).

    Errors: ConfigurationError when one is another cluster's, or formatted already (unless that is ignored).
    """
    for folder in configuration.folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = read_meta_properties(PosixDisk(), folder)
            if found is not None and found.cluster_id != cluster_id:
                raise ConfigurationError(f"{folder} belongs to cluster {found.cluster_id}, not to {cluster_id}")
            if found is not None and not ignore_formatted:
                raise ConfigurationError(f"{folder} is already formatted")
        except (OSError, CorruptFile) as error:
            raise ConfigurationError(f"{folder}: {_reason(error)}") from error
    for folder in sorted(configuration.folders, key=lambda each: each == configuration.folder):
        try:
            if credentials and folder == configuration.folder:
                write_bootstrap(PosixDisk(), folder, credentials, TimestampMs(time.time_ns() // 1_000_000))
            if read_meta_properties(PosixDisk(), folder) is None:
                own = first is not None and folder == configuration.folder
                directory = first.directory if first is not None and own else uuid.uuid4()
                if first is not None and own and first.voters is not None:
                    records = voter_records(Entry(NO_OFFSET, first.voters, LEVELS[1]))
                    format_voters(
                        PosixDisk(), folder / METADATA_FOLDER, records, TimestampMs(time.time_ns() // 1_000_000)
                    )
                meta = MetaProperties(cluster_id, configuration.node_id, directory)
                write_meta_properties(PosixDisk(), folder, meta)
        except (OSError, StorageError) as error:
            raise ConfigurationError(f"{folder}: {_reason(error)}") from error


def lock_folders(configuration: ServerConfiguration, open_files: contextlib.ExitStack) -> dict[Path, Unreadable | None]:
    """Create and lock the folders; returns for each the error that made it unreadable, or None.

    Errors: ConfigurationError when another process holds one, a folder is named twice, or the metadata log's is unreadable.
    """
    found: dict[Path, Unreadable | None] = {}
    resolved: set[Path] = set()
    for folder in configuration.folders:
        found[folder] = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (path := folder.resolve()) in resolved:
                raise ConfigurationError(f"log.dirs names {folder} twice")
            resolved.add(path)
            _lock(folder, open_files)
        except OSError as error:
            if folder == configuration.folder:
                raise ConfigurationError(f"{folder}: {error.strerror}") from error
            found[folder] = error
    return found


def _lock(folder: Path, open_files: contextlib.ExitStack) -> None:
    """Hold a folder's lock, so that no second process writes into it. Errors: OSError, ConfigurationError."""
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    open_files.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigurationError(f"{folder} is in use by another process") from None


def open_folders(
    configuration: ServerConfiguration,
    locked: Mapping[Path, Unreadable | None],
    logger: logging.Logger,
    id_of_cluster: Callable[[str], str] = str,
) -> tuple[str, dict[Path, MetaProperties | Unreadable]]:
    """The cluster's id, and each folder's meta.properties or error.

    New folders are formatted here where the cluster has one voter, or ZooKeeper coordinates it.

    `id_of_cluster` maps the folder's cluster id, or a new one for an unformatted folder, to the cluster's id.

    Errors: ConfigurationError for a folder that is not formatted, or is another node's, and for two of the same id.
    """
    found = {folder: error or _read(configuration, folder) for folder, error in locked.items()}
    if _is_new(configuration, found):
        _require_empty(found)
        formatted = {folder: meta for folder, meta in found.items() if isinstance(meta, MetaProperties)}
        for folder, meta in formatted.items():
            _check(configuration, folder, meta, {})
        if len(configuration.voters) > 1 or configuration.other_controllers:
            raise ConfigurationError(
                f"{configuration.folder} is not formatted: run `tidegauge format` with the cluster's id on each node"
            )
        cluster_id = id_of_cluster(next((meta.cluster_id for meta in formatted.values()), new_cluster_id()))
        format_folders(configuration, cluster_id, ignore_formatted=True)
        which = "a new cluster %s of one voter" if configuration.zookeeper is None else "the cluster %s in ZooKeeper"
        logger.info(f"formatted %s for {which}", ", ".join(map(str, found)), cluster_id)
        found = {folder: _read(configuration, folder) for folder in found}
    known: dict[Path, MetaProperties | Unreadable] = {}
    for folder, meta in found.items():
        if meta is None:
            _require_empty([folder])
            raise ConfigurationError(
                f"{folder} is not formatted: run `tidegauge format --ignore-formatted` with the cluster's id"
            )
        if isinstance(meta, Unreadable):
            logger.error("log directory %s cannot be read and is offline: %s", folder, _reason(meta))
        else:
            meta = _with_id(configuration, folder, meta, known)
        known[folder] = meta
    own = known[configuration.folder]
    assert isinstance(own, MetaProperties)
    if (cluster_id := id_of_cluster(own.cluster_id)) != own.cluster_id:
        raise ConfigurationError(
            f"{configuration.folder} belongs to cluster {own.cluster_id}, and {configuration.zookeeper} holds the data of "
            f"cluster {cluster_id}"
        )
    return own.cluster_id, known


def _read(configuration: ServerConfiguration, folder: Path) -> MetaProperties | Unreadable | None:
    """A folder's meta.properties, or the error. Errors: ConfigurationError where the metadata log's cannot be read."""
    try:
        return read_meta_properties(PosixDisk(), folder)
    except (OSError, CorruptFile) as error:
        if folder == configuration.folder:
            raise ConfigurationError(f"{folder}: {_reason(error)}") from error
        return error if isinstance(error, OSError) else OSError(errno.EIO, str(error))


def _is_new(configuration: ServerConfiguration, found: Mapping[Path, MetaProperties | Unreadable | None]) -> bool:
    """Whether the node never ran: no folder is formatted, or a start was killed before it had formatted the metadata log's."""
    if found[configuration.folder] is not None or any(isinstance(meta, Unreadable) for meta in found.values()):
        return False
    return all(meta is None for meta in found.values()) or not any(map(_foreign, found))


def _require_empty(folders: Mapping[Path, object] | list[Path]) -> None:
    """Errors: ConfigurationError for a folder with files that an interrupted formatting cannot have left."""
    for folder in folders:
        if _foreign(folder):
            raise ConfigurationError(f"{folder} is neither formatted nor empty: it may be another program's data")


def _foreign(folder: Path) -> set[str]:
    """The names in a folder that formatting cannot have left."""
    return {entry.name for entry in folder.iterdir()} - {LOCK_FILE, META_PROPERTIES, META_PROPERTIES + TEMPORARY}


def _with_id(
    configuration: ServerConfiguration,
    folder: Path,
    meta: MetaProperties,
    others: Mapping[Path, MetaProperties | Unreadable],
) -> MetaProperties:
    """The meta.properties of a folder of this node, with a new directory id where it has none. Errors: ConfigurationError."""
    known = meta if meta.directory_id != NO_UUID else meta._replace(directory_id=uuid.uuid4())
    _check(configuration, folder, known, others)
    if known is not meta:
        try:
            write_meta_properties(PosixDisk(), folder, known)
        except OSError as error:
            raise ConfigurationError(f"{folder}: {_reason(error)}") from error
    return known


def _check(
    configuration: ServerConfiguration,
    folder: Path,
    meta: MetaProperties,
    others: Mapping[Path, MetaProperties | Unreadable],
) -> None:
    if meta.node_id != configuration.node_id:
        raise ConfigurationError(f"{folder} belongs to node {meta.node_id}, but node.id is {configuration.node_id}")
    for other, its in others.items():
        if not isinstance(its, Unreadable) and its.cluster_id != meta.cluster_id:
            raise ConfigurationError(
                f"{folder} belongs to cluster {meta.cluster_id}, and {other} to cluster {its.cluster_id}"
            )
        if not isinstance(its, Unreadable) and its.directory_id == meta.directory_id:
            raise ConfigurationError(f"{folder} and {other} have the same directory.id: one is a copy")


def log_manager(
    configuration: ServerConfiguration,
    folders: Mapping[Path, MetaProperties | Unreadable],
    say: Callable[[str, str], None],
    shares: Shares = MOST_OPEN,
) -> LogManager:
    """The log directories, each on a disk of its own."""
    made: dict[Path, LogDirectory] = {}
    for folder, meta in folders.items():
        disk = PosixDisk(run_side_by_side, shares.files, shares.maps)
        if isinstance(meta, Unreadable):
            disk.failed(meta)
        made[folder] = LogDirectory(
            disk, folder, say, uuid.UUID(int=0) if isinstance(meta, Unreadable) else meta.directory_id
        )
    return LogManager([made[folder] for folder in configuration.data_folders], made[configuration.folder], say)


def run_side_by_side(acts: Sequence[Act]) -> None:
    """Run acts in the threads of a kept pool: a node that opens thousands of replicas calls it a hundred times a second.

    Errors: OSError, of the first that failed.
    """
    threads = _threads() if len(acts) > 1 else None
    if threads is None:
        return run_in_turn(acts)
    running = [threads.submit(act) for act in acts]
    wait(running)
    for each in running:
        each.result()


@cache
def _threads() -> ThreadPoolExecutor | None:
    """All threads are started now, or none: where the system refuses one later, an act could wait for it for ever."""
    threads, are_begun = ThreadPoolExecutor(MOST_FLUSHES, "flush"), Barrier(MOST_FLUSHES)
    try:
        for _ in range(MOST_FLUSHES):
            threads.submit(are_begun.wait)
    except RuntimeError:
        are_begun.abort()
        threads.shutdown(wait=False, cancel_futures=True)
        return None
    return threads


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
