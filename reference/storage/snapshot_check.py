"""A producer snapshot is held against the log before it is believed: it is whole in another partition's folder, too.

Kafka's snapshots name no partition. Of the newest batch that a snapshot knows, the log has that very batch, or nothing at its
place any more (retention, compaction).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from reference.protocol.primitives import Offset
from reference.storage.producer_state import ProducerState
from reference.storage.segment import Segment


def load_producers(producers: ProducerState, segments: Sequence[Segment], log_start: Offset, log_end: Offset) -> None:
    """Load the newest snapshot that fits the log; one that does not is removed, and the log read from an earlier one on.

    Errors: RecordsError, OSError.
    """
    producers.load(log_start, log_end)
    while producers.producers and not _is_of_this_log(producers, segments):
        producers.remove_snapshot(producers.end_offset)
        producers.load(log_start, log_end)


def _is_of_this_log(producers: ProducerState, segments: Sequence[Segment]) -> bool:
    known = ((each.batches[-1], id) for id, each in producers.producers.items() if each.batches)
    last, producer_id = max(known, key=lambda found: found[0].last_offset, default=(None, None))
    if last is None or not segments or last.last_offset < segments[0].base_offset:
        return True
    if last.last_offset >= producers.end_offset:
        return False
    segment = segments[bisect_right(segments, last.last_offset, key=lambda each: each.base_offset) - 1]
    found = segment.find(last.last_offset)
    if found is None:
        return True  # what lay there is gone
    header = segment.header_at(found.position)
    is_gone = header.base_offset > last.last_offset
    return is_gone or (header.producer_id, header.last_sequence) == (producer_id, last.last_sequence)
