"""Apache Kafka's own bugs that fail requirements: the affected releases, a reference, and the effect.

A run on `kafka:VERSION` reports the bug instead of a failure, and does not fail by it. A bug that shows in every run is
strict: where its requirement passes, the run reports that the table is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.requirement import version_key


@dataclass(frozen=True, slots=True)
class KnownBug:
    """One bug of Apache Kafka."""

    ids: tuple[str, ...]
    """The requirements that it fails."""
    reference: str
    """The bug's issue in Apache's JIRA, else the issue that introduced the bug, or the path of this project's finding."""
    what: str
    since: str
    """The first release that has it."""
    mended: tuple[str, ...] = ()
    """The first releases without the bug. The last entry holds for all later releases, the others for their own line
    (1.0.2)."""
    strict: bool = True
    """Whether the bug shows in every run."""
    kraft: bool = False
    """Whether only clusters with KRaft have the bug."""
    shows: str = ""
    """A part of the failure's text that identifies this bug; empty where any failure does."""

    def affects(self, version: str) -> bool:
        """Whether a release has the bug."""
        key = version_key(version)
        if key < version_key(self.since) or (self.mended and key >= version_key(self.mended[-1])):
            return False
        lines = [version_key(first) for first in self.mended[:-1]]
        return not any(key[: len(first) - 1] == first[:-1] and key >= first for first in lines)


KNOWN_BUGS = (
    KnownBug(
        ("GAD-02",), "KAFKA-9150", "DescribeGroups gives each member's assignment in the place of its metadata",
        since="2.3", mended=("2.4",), shows="the members is",
    ),
    KnownBug(
        ("TOP-20",), "KAFKA-5163", "DeleteRecords moves the log start, and then refuses because of the cleanup policy",
        since="0.11.0", mended=("1.1",), shows="the log start offset is",
    ),
    KnownBug(
        ("CMP-09",), "KAFKA-5490", "the cleaner keeps a producer's last record, for want of an empty batch to keep its sequence",
        since="0.11.0", mended=("0.11.0.1", "1.0"), shows="a producer's only reco",
    ),
    KnownBug(
        ("FMT-03",), "KAFKA-6739", "records with headers are not converted for old consumers: UNKNOWN_SERVER_ERROR",
        since="0.11.0", mended=("1.0.2", "1.1.1", "2.0"), shows="UNKNOWN_SERVER_ERROR",
    ),
    KnownBug(
        ("CMP-08",), "KAFKA-6324", "two deletions of a cleaned segment meet, and the broker gives up its disk and ends",
        since="1.0", mended=("1.1",), strict=False,
    ),
    KnownBug(
        ("LOF-13",), "KAFKA-5522", "a search by timestamp goes beyond the last stable offset",
        since="0.11.0", mended=("0.11.0.1", "1.0"), shows="for 11 is (1, 20), not (-1, -1)",
    ),
    KnownBug(
        ("TXN-02",), "KAFKA-14561", "a partition that saw nothing of the new epoch takes what the former one writes",
        since="0.11.0", mended=("3.6",), shows="NONE(0) instead of INVALID_PRODUCER_EPOCH(47)",
    ),
    KnownBug(
        ("TXN-20",), "KAFKA-14561", "a partition that saw nothing of the new epoch takes what the former one writes",
        since="1.0", mended=("3.6",), shows="NONE(0) instead of INVALID_PRODUCER_EPOCH(47)",
    ),
    KnownBug(
        ("TXN-20",), "KAFKA-15449", "the offsets that a transaction commits in a former epoch are taken",
        since="3.6", mended=("3.7",), shows="TxnOffsetCommit: NONE(0) instead of",
    ),
    KnownBug(
        ("TXN-08",), "KAFKA-9600", "EndTxn in an epoch that was never given ends the transaction",
        since="1.0", mended=("2.6",), shows="a future epoch",
    ),
    KnownBug(
        ("MET-08",), "KAFKA-10312", "a broker asks whether it is alive itself, not whether the leader is",
        since="2.0", mended=("2.7",), shows="LISTENER_NOT_FOUND(72) instead of LEADER_NOT_AVAILABLE(5)",
    ),
    KnownBug(
        ("TXN-10", "TXN-13", "TXN-46", "TXV-10"), "KAFKA-13091",
        "when an ISR shrinks by AlterIsr, the high watermark stays, and acks=-1 waits for the next write or a new leader",
        since="2.7", mended=("3.1",), strict=False, shows="no answer to EndTxn v3 in time",
    ),
    KnownBug(
        ("RET-08",), "KAFKA-13091",
        "when an ISR shrinks by AlterIsr, the high watermark stays, and acks=-1 waits for the next write or a new leader",
        since="2.7", mended=("3.1",), strict=False, shows="REQUEST_TIMED_OUT(7)",
    ),
    KnownBug(
        ("ELE-03",), "KAFKA-12670", "with KRaft no replica that is out of sync leads, whatever the topic allows",
        since="3.3", mended=("3.9",), strict=False, kraft=True, shows="-0: node ",  # not "knows that it leads", of a later step
    ),
    KnownBug(
        ("MET-11",), "KAFKA-12701", "a Metadata request that names a topic by its id, and one without a name, is not answered",
        since="2.8", mended=("2.8.1", "3.0"), shows="no answer to Metadata v10",
    ),
    KnownBug(
        ("CFG-14",), "KAFKA-10557", "a topic's configurations are described without their documentation",
        since="2.6", mended=("2.6.1", "2.7"), shows="names without documentation",
    ),
    KnownBug(
        ("GAD-10",), "KAFKA-10239", "groups with static members are not described below DescribeGroups v4",
        since="2.5", mended=("2.5.1", "2.6"), shows="v0: the members is []",
    ),
    KnownBug(
        ("PRD-13",), "KAFKA-9492", "a refusal that names records fails the whole request below Produce v8",
        since="2.4", mended=("2.4.1", "2.5"), shows="UNKNOWN_SERVER_ERROR(-1)",
    ),
    KnownBug(
        ("CGH-19",), "KAFKA-19233", "a known member that joins again with epoch 0 is fenced",
        since="4.0", mended=("4.2",), shows="FENCED_MEMBER_EPOCH(110)",
    ),
    KnownBug(
        ("CGH-43",), "KAFKA-20601", "a static member that comes back into a full group is taken for a new one",
        since="4.0", mended=("4.4",), shows="GROUP_MAX_SIZE_REACHED(81) instead of NONE(0)",
    ),
    KnownBug(
        ("TXN-05", "TXN-23"), "KAFKA-19367", "an abort by the coordinator raises the epoch twice: its producer is fenced",
        since="4.0", mended=("4.0.1", "4.1"), shows="InitProducerId was answered with PRODUCER_FENCED(90)",
    ),
    KnownBug(
        ("TXN-20",), "KAFKA-19367", "an abort by the coordinator raises the epoch twice: its producer is fenced",
        since="4.0", mended=("4.0.1", "4.1"), shows="EndTxn v5 to commit: PRODUCER_FENCED(90)",
    ),
    KnownBug(
        ("SEC-28",), "KAFKA-18573", "brought a validator that checks no signature, time, audience or issuer of a token",
        since="4.1", mended=("4.1.2", "4.2"), shows="another key: does not hold: the token is refused",
    ),
    KnownBug(
        ("SEC-44",), "linearizability/findings/lost_users/README.md", "a deleted user takes the mechanism's others with it",
        since="3.9", shows="the user that is left is accepted again",
    ),
)  # fmt: skip
"""The bugs that runs of the suite have found. At each boundary both releases were run, except for KAFKA-6324, which is rare,
and for the start of KAFKA-13091, the release that introduced AlterIsr: 0.11.0.0 and 0.11.0.1, 1.0.2 and 1.1.0, 1.1.0 and
1.1.1, 2.4.0 and 2.4.1, 2.5.0 and 2.5.1, 2.5.1 and 2.6.0, 2.6.0 and 2.6.1, 2.6.3 and 2.7.0, 2.8.0 and 2.8.2, 3.0.2 and 3.1.2,
3.5.2 and 3.6.0, 3.6.2 and 3.7.0, 3.7.0 and 3.9.2, 4.0.0 and 4.0.1, 4.1.1 and 4.1.2, 4.1.2 and 4.2.0, 4.3.1 and 4.4.0. SEC-44's
bug begins here with the first release on which SEC-44 can be judged; SCRAM in KRaft is older."""


def known_bugs(spec: str) -> dict[str, KnownBug]:
    """Requirement -> the known bug of a target `kafka:VERSION[:NODES]` or `kafka-zk:...`; empty for other targets."""
    kind, _, rest = spec.partition(":")
    version = rest.partition(":")[0]
    bugs = [bug for bug in KNOWN_BUGS if kind == "kafka" or (kind == "kafka-zk" and not bug.kraft)]
    found = [bug for bug in bugs if bug.affects(version)]
    return {id: bug for bug in found for id in bug.ids}
