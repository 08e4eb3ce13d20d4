"""What must hold of one partition after every step: the specification's properties, over real logs."""

from collections.abc import Iterable, Sequence
from typing import Any

from reference.replication.partition import Partition

Content = list[tuple[int, bytes]]
"""A log's records: epoch and value; the offset is the place."""


class Broken(AssertionError):
    """A promise was broken; the message begins with its name in the specification."""


def require(holds: bool, promise: str, text: str) -> None:
    if not holds:
        raise Broken(f"{promise}: {text}")


def is_prefix(shorter: Sequence[Any], longer: Sequence[Any]) -> bool:
    return len(shorter) <= len(longer) and list(longer[: len(shorter)]) == list(shorter)


def maximal_isr(partition: Partition) -> set[int]:
    """Not asked of the replica: it might be wrong about it."""
    return {*partition.state.isr, *(partition.pending.isr if partition.pending is not None else ())}


class Promises:
    """Remembers what was ever committed, acknowledged and read, and compares."""

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.committed: Content = []
        """The longest prefix that any replica ever called committed."""
        self.acknowledged: set[bytes] = set()
        self._leader_epochs: dict[int, tuple[int, int]] = {}

    # ---- single steps

    def on_step(self, action: str, partition: Partition) -> None:
        """The rules of one leader's own numbers, at the moment of a step."""
        if action == "AdvanceHighWatermark":
            require(len(partition.state.isr) >= self.min_isr, "UnderMinIsr", f"{partition.state.isr} committed")
            counted = maximal_isr(partition) - {partition.node}
            ends = {member: partition.followers[member].end for member in counted}
            least = min([partition.log.log_end_offset, *ends.values()])
            require(partition.high_watermark <= least, "LeastEnd", f"{partition.high_watermark} committed, ends {ends}")

    # ---- states

    def check_logs(self, logs: dict[int, Content]) -> None:
        """LogMatching, EpochsNeverDecreaseInLog."""
        for node, log in logs.items():
            epochs = [epoch for epoch, _ in log]
            require(epochs == sorted(epochs), "EpochsNeverDecreaseInLog", f"{epochs} on {node}")
        for a, b in ((a, b) for a in logs for b in logs if a < b):
            self._match(logs[a], logs[b], f"logs of {a} and {b}")

    def _match(self, a: Content, b: Content, whose: str) -> None:
        agree = [place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x[0] == y[0]]
        if agree:
            end = agree[-1] + 1
            require(a[:end] == b[:end], "LogMatching", f"{whose} part below {end}: {a[:end]} {b[:end]}")

    def check_high_watermark(self, partition: Partition, log: Content) -> None:
        """HighWatermarkBound, HighWatermarkMonotoneInEpoch, CommittedLogsAgree."""
        node, mark = partition.node, partition.high_watermark
        require(0 <= mark <= len(log), "HighWatermarkBound", f"{mark} of {len(log)} on {node}")
        epoch, before = self._leader_epochs.get(node, (-1, 0))
        if partition.is_leader:
            same = epoch == partition.leader_epoch
            require(not same or mark >= before, "HighWatermarkMonotoneInEpoch", f"{before} became {mark} on {node}")
            self._leader_epochs[node] = (partition.leader_epoch, mark)
        committed = log[:mark]
        longer, shorter = sorted((committed, self.committed), key=len, reverse=True)
        require(
            is_prefix(shorter, longer), "CommittedLogsAgree", f"{node} calls {committed}, committed {self.committed}"
        )
        self.committed = longer

    def check_leader(self, partition: Partition, log: Content, members: Iterable[int]) -> None:
        """LeaderCompleteness, NoAcknowledgedRecordLost, MaximalIsrIsSuperset: of the leader of the newest leader epoch."""
        node = partition.node
        require(is_prefix(self.committed, log), "LeaderCompleteness", f"{node} has {log} of {self.committed}")
        lost = self.acknowledged - {value for _, value in log}
        require(not lost, "NoAcknowledgedRecordLost", f"{lost} on {node}")
        outside = set(members) - maximal_isr(partition)
        require(not outside, "MaximalIsrIsSuperset", f"{outside} do not count for leader {node}")

    def check_eligible(self, nodes: Iterable[int], logs: dict[int, Content]) -> None:
        """EligibleAreComplete: of ISR and ELR, but for those that lost a tail and were not yet found out."""
        for node in nodes:
            require(is_prefix(self.committed, logs[node]), "EligibleAreComplete", f"{node} lacks {self.committed}")
