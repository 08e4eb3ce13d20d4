# pyright: reportPrivateUsage=false
"""Checks the voters of the metadata quorum (KIP-853): each member goes by its own log, and deciding majorities overlap."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from linearizability.simulation.world import Violation
from reference.controller.quorum import Quorum
from reference.controller.quorum_voters import VOTER_RECORDS, VoterSet
from reference.protocol.codec import decode
from reference.protocol.messages.voters_record import VotersRecord
from reference.protocol.primitives import Offset
from reference.protocol.records.batch import records_of
from reference.protocol.records.control import control_type
from reference.protocol.records.record import Record

COMPARED = 16
"""Of the steps that change no voters, one in this many is compared."""
NONE = -1
UNSEEN = (sys.maxsize, NONE)
Change = tuple[int, int, VoterSet]
"""The base offset of its batch, its offset, and the voters."""


class VoterAgreement:
    """Follows the voters that each member goes by."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        """Of each member: the end of its log, and the offset of its latest voters."""
        self._steps = 0

    def follow(self, number: int, quorum: Quorum) -> None:
        """Take a change of a member's log, high watermark or role. Errors: Violation."""
        end, latest = self._seen.get(number, UNSEEN)
        now = quorum.log.end, quorum.log.history.offset
        self._seen[number] = now
        self._steps += 1
        if now[1] == latest and now[0] >= end and self._steps % COMPARED:
            return
        changes = [*_changes(quorum)]
        if not changes:
            return
        _, offset, voters = changes[-1]
        if [*voters] != [*quorum.voters]:
            text = f"node {number} goes by the voters {quorum.voters}, and its log has {voters} at {offset}"
            raise Violation("voters-not-of-the-log", text)
        if quorum.leading is not None:
            _require_order(number, quorum, quorum.leading.epoch_start, changes)


def _require_order(number: int, quorum: Quorum, epoch_start: Offset, changes: list[Change]) -> None:
    """A leader changes the voters once a record of its epoch and the change before are committed. Errors: Violation."""
    (batch, offset, _), previous = changes[-1], changes[-2][1] if len(changes) > 1 else NONE
    if batch > epoch_start and quorum.high_watermark <= max(epoch_start, previous):
        text = f"node {number} appended voters at {offset}, with {previous} before, in the epoch that begins at {epoch_start}"
        raise Violation("voters-changed-too-early", f"{text}; committed up to {quorum.high_watermark}")


def _changes(quorum: Quorum) -> Iterator[Change]:
    """The voters that the newest snapshot has, then those of the log; the snapshot's may come again."""
    log = quorum.log
    latest = log.snapshots.latest
    if latest is not None:
        for record in log.snapshots.control_records(latest):
            if (voters := _voters(record)) is not None:
                yield NONE, latest.end_offset - 1, voters
    for batch in log._records._batches(log.start, log.end):
        if batch.header.is_control:
            for record in records_of(batch.data):
                if (voters := _voters(record)) is not None:
                    yield batch.header.base_offset, record.offset, voters


def _voters(record: Record) -> VoterSet | None:
    form = VOTER_RECORDS.get(control_type(record))
    return VoterSet.of_record(decode(form, 0, record.value or b"")) if form is VotersRecord else None
