"""When a node writes down what the metadata amount to, so that their log may be cut. (KIP-630)"""

from __future__ import annotations

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.controller.image_records import image_records
from reference.controller.quorum import Quorum
from reference.protocol.primitives import TimestampMs
from reference.storage.errors import StorageError
from reference.storage.log import Log
from reference.storage.log_directory import Logger


class MetadataSnapshots:
    """Due once enough was written since the last one, or enough time is over."""

    def __init__(self, configuration: Configuration, log: Log, say: Logger, now: TimestampMs) -> None:
        self._log = log
        self._say = say
        integer = configuration.integer
        self._due_bytes = integer("metadata.log.max.record.bytes.between.snapshots")
        self._due_ms = integer("metadata.log.max.snapshot.interval.ms")
        self._last = log.size_bytes, now
        """How large the metadata log was at the last snapshot, or at the start, and when that was."""

    def write_if_due(self, quorum: Quorum, image: MetadataImage, now: TimestampMs) -> None:
        size, (size_then, then) = self._log.size_bytes, self._last
        is_old = 0 < self._due_ms <= now - then
        if is_old or size - size_then >= self._due_bytes:
            self._last = size, now
            try:
                quorum.write_snapshot(image.end_offset, image_records(image), now)
            except StorageError as error:
                self._say("error", f"metadata snapshot: {error}")
