"""Bugs in the batches that a partition accepts, and in the records and offsets that it reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from linearizability.mutants.registry import mutant
from reference.protocol.errors import ErrorCode

MUCH = 1 << 30


@mutant(
    "reference.protocol.records.validate:check_crc",
    "A batch whose bytes do not fit its checksum is appended.",
    caught_by=("PRD",),
    everywhere=False,
)
def crc_unchecked(original: Any, batch: Any, header: Any) -> None:
    return None


@mutant(
    "reference.protocol.records.validate:validate",
    "max.message.bytes is ignored.",
    caught_by=("PRD",),
)
def size_unlimited(original: Any, records: Any, rules: Any, *more: Any) -> Any:
    return original(records, replace(rules, max_message_bytes=MUCH), *more)


@mutant(
    "reference.storage.log:validate",
    "A compacted topic takes records without a key.",
    caught_by=("PRD",),
    everywhere=False,
)
def null_key_compacted(original: Any, records: Any, rules: Any, *more: Any) -> Any:
    return original(records, replace(rules, compacted=False), *more)


@mutant(
    "reference.storage.log:validate",
    "A topic with LogAppendTime keeps the producer's timestamps.",
    caught_by=("ACK",),
    everywhere=False,
)
def log_append_time_ignored(original: Any, records: Any, rules: Any, *more: Any) -> Any:
    return original(records, replace(rules, log_append_time=False), *more)


@mutant(
    "reference.storage.sequence_check:check_sequence",
    "A producer's batch is appended although its sequence number does not follow.",
    caught_by=("IDM",),
)
def sequence_unchecked(original: Any, *arguments: Any) -> ErrorCode:
    return ErrorCode.NONE


@mutant(
    "reference.storage.log:Log.append_as_leader",
    "A batch that an idempotent producer sends again is appended again.",
    caught_by=("IDM",),
    fuzz=True,
)
def duplicate_appended(original: Any, log: Any, records: Any, *more: Any, **named: Any) -> Any:
    from reference.protocol.records.batch import read_header

    try:
        header = read_header(records)
    except Exception:
        return original(log, records, *more, **named)
    if header.producer_id >= 0 and log._producers.find_duplicate(header) is not None:
        del log._producers.producers[header.producer_id]
    return original(log, records, *more, **named)


@mutant(
    "reference.storage.producer_state:ProducerState.find_duplicate",
    "A batch that an idempotent producer sends again is refused as out of order.",
    caught_by=("IDM",),
    fuzz=True,
)
def duplicate_refused(original: Any, *arguments: Any) -> None:
    return None


@mutant(
    "reference.replication.fencing:check_leader_epoch",
    "A request with an old or a future leader epoch is served.",
    caught_by=("EPO",),
)
def leader_epoch_unfenced(original: Any, asked: int, current: int) -> ErrorCode:
    return ErrorCode.NONE


@mutant(
    "reference.replication.high_watermark:next_high_watermark",
    "The high watermark is one past the log's end as soon as the log holds anything.",
    caught_by=("LOF", "FET"),
    fuzz=True,
)
def high_watermark_ahead(original: Any, current: int, leader_end: int, follower_ends: Any) -> int:
    found = original(current, leader_end, follower_ends)
    return found + 1 if found and found == leader_end else found


@mutant(
    "reference.replication.high_watermark:next_high_watermark",
    "The high watermark steps back by one now and then.",
    fuzz=True,
)
def high_watermark_back(original: Any, current: int, leader_end: int, follower_ends: Any) -> int:
    found = original(current, leader_end, follower_ends)
    return max(0, current - 1) if found % 7 == 6 else found


@mutant(
    "reference.storage.log:Log.offset_for_timestamp",
    "ListOffsets by timestamp gives the last record that is young enough instead of the first.",
    caught_by=("LOF",),
)
def timestamp_finds_last(original: Any, log: Any, timestamp: int) -> Any:
    found = original(log, timestamp)
    return found and found._replace(offset=log.log_end_offset - 1)


@mutant(
    "reference.storage.shortening:Shortening.advance_log_start_offset",
    "DeleteRecords is answered and moves nothing.",
    caught_by=("TOP",),
)
def delete_records_unheeded(original: Any, log: Any, offset: int) -> bool:
    return False


@mutant(
    "reference.replication.leader:Leading._require_settled_end",
    "A new leader reports its high watermark as the log's end before it knows what its predecessor has committed (KIP-207).",
    fuzz=True,
    nodes=3,
    breaks=("end-behind-commit",),
)
def unsettled_end_reported(original: Any, leading: Any, for_replica: bool) -> None:
    return None
