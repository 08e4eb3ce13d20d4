"""Checks a producer snapshot against the log: a valid snapshot may be another partition's.

Kafka's snapshots name no partition. At the offset of the newest batch that a snapshot knows, the log must have that very batch,
or no batch any more (retention, compaction). The last batches before the snapshot's end must not be newer than its state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from reference.protocol.primitives import Offset
from reference.protocol.records.batch import BatchHeader
from reference.storage.producer_state import ProducerState
from reference.storage.segment import Segment


def load_producers(producers: ProducerState, segments: Sequence[Segment], log_start: Offset, log_end: Offset) -> None:
    """Load the newest snapshot that fits the log, and remove newer ones that do not.

    Errors: RecordsError, OSError.
    """
    producers.load(log_start, log_end)
    while producers.producers and not _is_of_this_log(producers, segments):
        producers.remove_snapshot(producers.end_offset)
        producers.load(log_start, log_end)


def _is_of_this_log(producers: ProducerState, segments: Sequence[Segment]) -> bool:
    known = ((each.batches[-1], id) for id, each in producers.producers.items() if each.batches)
    last, producer_id = max(known, key=lambda found: found[0].last_offset, default=(None, None))
    if last is None:
        return True
    if last.last_offset >= producers.end_offset:
        return False
    if not segments or last.last_offset < segments[0].base_offset:
        return True
    segment = _segment_of(segments, last.last_offset)
    found = segment.find(last.last_offset)
    header = None if found is None else segment.header_at(found.position)
    if header is None or header.base_offset > last.last_offset:
        is_there = True  # what lay there is gone
    else:
        is_there = (header.producer_id, header.last_sequence) == (producer_id, last.last_sequence)
    end = producers.end_offset
    return is_there and not any(
        _is_later(header, producers) for header in _segment_of(segments, end - 1).last_headers(end)
    )


def _is_later(header: BatchHeader, producers: ProducerState) -> bool:
    """Whether a batch below the snapshot's end is newer than its state of the producer: last batch, or open transaction."""
    known = producers.producers.get(header.producer_id)  # it may have expired before the snapshot was taken
    if known is None:
        return False
    if header.is_control:
        return 0 <= known.transaction_start < header.base_offset
    return bool(known.batches) and known.batches[-1].last_offset < header.last_offset


def _segment_of(segments: Sequence[Segment], offset: Offset) -> Segment:
    """The segment that holds an offset, or would hold it."""
    return segments[bisect_right(segments, offset, key=lambda each: each.base_offset) - 1]
