"""Whether a producer's transaction is known to its coordinator, before a partition takes the first batch of it (KIP-890).

A late batch of an ended transaction would open a transaction that never ends: the last stable offset would hang. So a leader
asks the coordinator first, and only the request that was verified may open the transaction: it holds the *guard* of that
verification. An appended batch, or a marker, makes the guard void, so that a response after the transaction's end opens
nothing (TXN-16).

Source: KIP-890; org.apache.kafka.storage.internals.log.VerificationStateEntry, UnifiedLog.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reference.protocol.primitives import ProducerEpoch, ProducerId, Sequence, TimestampMs


class Guard:
    """The right to open one transaction of one producer in one partition."""

    __slots__ = ()


NOT_REQUIRED = Guard()
"""The guard without verification: transaction.partition.verification.enable is off."""


@dataclass(slots=True)
class Verification:
    """A pending verification of a producer's transaction."""

    asked_at: TimestampMs
    lowest_sequence: Sequence
    """The lowest sequence number seen during the verification: the first batch must not have a higher one."""
    epoch: ProducerEpoch
    adds_partition: bool
    """Whether the request also adds the partition to the transaction (transaction version 2)."""
    guard: Guard = field(default_factory=Guard)

    def see(self, epoch: ProducerEpoch, sequence: Sequence) -> None:
        """Record one more batch that waits for this verification."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Verifications:
    """The pending verifications of one partition, by producer. They are the leader's memory, not a part of the log."""

    def __init__(self) -> None:
        self._open: dict[ProducerId, Verification] = {}

    def begin(
        self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: Sequence, adds_partition: bool, now: TimestampMs
    ) -> Guard:
        """Begin a verification, or join the pending one."""
        found = self._open.get(producer_id)
        if found is None:
            found = self._open[producer_id] = Verification(now, sequence, epoch, adds_partition)
        found.see(epoch, sequence)
        return found.guard

    def of(self, producer_id: ProducerId) -> Verification | None:
        return self._open.get(producer_id)

    def appended(self, producer_id: ProducerId, epoch: ProducerEpoch, is_marker: bool) -> None:
        """End the verification of a transaction whose batch was written.

        With transaction version 2 a marker has the epoch of the *next* transaction, which may be under verification already.
        """
        found = self._open.get(producer_id)
        if found is not None and not (is_marker and found.adds_partition and found.epoch == epoch):
            del self._open[producer_id]

    def expire(self, now: TimestampMs, expiration_ms: int) -> None:
        for producer_id, found in [*self._open.items()]:
            if now - found.asked_at >= expiration_ms:
                del self._open[producer_id]
