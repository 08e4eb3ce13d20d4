"""Bugs in the data that is written to disk, and in its recovery after a restart."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.registry import mutant
from reference.storage.errors import StorageError
from reference.storage.log_directory import METADATA_TOPIC


@mutant(
    "reference.storage.segment:Segment.flush",
    "A flush moves the recovery point and does not flush the files.",
    fuzz=True,
)
def flush_skipped(original: Any, segment: Any) -> None:
    return None


@mutant(
    "reference.storage.segment_list:SegmentList.close",
    "A clean stop does not flush what it closes.",
    fuzz=True,
)
def unclean_stop_called_clean(original: Any, log: Any) -> None:
    log._producers.end_offset = log.log_end_offset
    log._producers.take_snapshot()
    log._active.close()


@mutant(
    "reference.storage.recovery:_Recovery._recover",
    "After a crash the last segment is taken as it is found, without a look at its batches.",
    fuzz=True,
)
def torn_tail_kept(original: Any, recovery: Any, segment: Any, before: Any, is_last: Any) -> bool:
    return True


@mutant(
    "reference.storage.recovery:load",
    "After a restart the log is one batch shorter.",
    caught_by=("RET", "PRD"),
    fuzz=True,
)
def recovery_cuts_too_much(original: Any, *arguments: Any, **named: Any) -> Any:
    loaded = original(*arguments, **named)
    last = None
    for batch in loaded.segments[-1].batches():
        last = batch
    if last is None or last.header.base_offset == 0 or last.header.is_control:
        return loaded
    loaded.segments[-1].cut(last.position, last.header.base_offset)
    loaded.segments[-1].activate(2048)
    return loaded._replace(log_end=last.header.base_offset)


@mutant(
    "reference.storage.recovery:load",
    "After a restart the log goes on one offset too late.",
    fuzz=True,
)
def offset_skipped_at_restart(original: Any, *arguments: Any, **named: Any) -> Any:
    loaded = original(*arguments, **named)
    folder = arguments[1]
    return loaded._replace(log_end=loaded.log_end + 1) if loaded.log_end > 0 and folder.name[0] != "_" else loaded


@mutant(
    "reference.storage.recovery:_Recovery.rebuild_producers",
    "After a restart no partition knows its idempotent producers.",
    fuzz=True,
)
def producers_forgotten(original: Any, recovery: Any, segments: Any, log_end: int, *more: Any) -> None:
    recovery.producers.clear(log_end)


@mutant(
    "reference.storage.log:Log._write",
    "A batch that the disk refused is acknowledged.",
    fuzz=True,
)
def disk_error_swallowed(original: Any, log: Any, data: Any, first: int, last: int, *more: Any) -> None:
    try:
        original(log, data, first, last, *more)
    except StorageError:
        log.log_end_offset = last + 1


@mutant(
    "reference.controller.metadata_log:MetadataLog.append",
    "A decision about the cluster is answered before it is flushed.",
    fuzz=True,
)
def metadata_unflushed(original: Any, metadata_log: Any, *arguments: Any) -> int:
    log = metadata_log.log
    log.flush = lambda now=None: None
    try:
        return original(metadata_log, *arguments)
    finally:
        del log.flush


@mutant(
    "reference.storage.retention:breaching_segments",
    "Retention takes one segment more than is due, with records that are younger.",
    caught_by=("RET",),
)
def active_segment_deleted(original: Any, segments: Any, *more: Any) -> int:
    due = original(segments, *more)
    return min(len(segments) - 1, due + 1) if due else 0


@mutant(
    "reference.storage.segment_list:SegmentList._roll",
    "The last batch of a segment is gone when the next segment begins.",
    fuzz=True,
)
def rotation_loses_a_batch(original: Any, log: Any, base: int, now: int) -> Any:
    last = None
    for batch in log._active.batches():
        last = batch
    if last is not None and last.position:
        log._active.cut(last.position, last.header.base_offset)
    return original(log, base, now)


@mutant(
    "reference.storage.making_durable:Failing.failed",
    "A node goes on after a failed fsync: the next one, of pages that the system takes for written, moves the recovery point.",
    fuzz=True,
)
def failed_flush_forgotten(original: Any, disk: Any, error: OSError) -> None:
    return None


@mutant(
    "reference.storage.simulated_disk:SimulatedFile.rewrite",
    "After a failed fsync and a restart, recovery takes what it reads for what the next fsync makes durable.",
    fuzz=True,
)
def page_cache_trusted(original: Any, file: Any, position: int, data: Any) -> None:
    return None


@mutant(
    "reference.storage.log_directory:LogDirectory._make_way",
    "A broker that was down while a topic was deleted and created again takes the old log for the new one's (KAFKA-14616).",
    fuzz=True, nodes=3,
)  # fmt: skip
def deleted_topics_log_kept(original: Any, directory: Any, key: Any, topic_id: Any) -> None:
    if key[0] == METADATA_TOPIC:
        original(directory, key, topic_id)


@mutant(
    "reference.storage.directory_checkpoints:DirectoryCheckpoints.write",
    "After a kill a topic begins with the high watermark that was stored for a deleted one of its name.",
    fuzz=True, nodes=3, breaks=("high-watermark-not-stored",),
)  # fmt: skip
def deleted_topics_high_watermark_kept(original: Any, checkpoints: Any, checksums: Any) -> None:
    checkpoints.has_stale_lines = False
    original(checkpoints, checksums)
