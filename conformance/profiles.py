"""Profiles for vendors: parts of the suite that a broker can claim. Every requirement belongs to exactly one.

The result to quote is one line for each profile: "core: 112 of 114 musts judged, 2 fail" (`results.profile_tallies`). A
requirement's area determines its profile, except for EXCEPTIONS.
"""

from __future__ import annotations

from enum import StrEnum


class ConformanceProfile(StrEnum):
    """A profile of the suite: what a vendor can say that a broker keeps. Every requirement belongs to exactly one."""

    CORE = "core"
    """Producers and consumers that assign partitions to themselves, on one node: connect, find, write, read, keep."""
    GROUPS = "groups"
    """Consumer groups, classic and KIP-848: membership, assignments, committed offsets, their administration."""
    TRANSACTIONS = "transactions"
    """Transactions: their coordinator, what read_committed shows, offsets committed in them."""
    ADMIN = "admin"
    """Administration: topics, partitions, configurations, records removed by retention and compaction."""
    REPLICATION = "replication"
    """Several nodes: in-sync replicas, elections, reassignments, leader epochs after a fail-over."""
    HISTORY = "history"
    """What clients of every kind saw while nodes were killed, stopped and frozen keeps Kafka's promises of delivery."""


P = ConformanceProfile

PROFILE_OF_AREA = {
    "BAS": P.CORE, "FRM": P.CORE, "API": P.CORE, "MET": P.CORE, "FMT": P.CORE, "PRD": P.CORE,
    "ACK": P.CORE,
    "FET": P.CORE, "FSS": P.CORE, "EPO": P.CORE, "LOF": P.CORE, "IDM": P.CORE,
    "TXN": P.TRANSACTIONS, "TXV": P.TRANSACTIONS,
    "COO": P.GROUPS, "GRP": P.GROUPS, "OFF": P.GROUPS, "CGH": P.GROUPS, "GAD": P.GROUPS,
    "TOP": P.ADMIN, "CFG": P.ADMIN, "RET": P.ADMIN, "CMP": P.ADMIN, "ACL": P.ADMIN,
    "REP": P.REPLICATION, "ELE": P.REPLICATION,
    "HIS": P.HISTORY, "SEC": P.ADMIN, "QTA": P.ADMIN, "OPT": P.CORE,
}  # fmt: skip
"""Area code -> the profile of its requirements."""

EXCEPTIONS = {
    **dict.fromkeys(("BAS-06", "BAS-07", "BAS-08", "BAS-11"), P.GROUPS),
    "BAS-10": P.TRANSACTIONS,
    "BAS-14": P.REPLICATION,
    **dict.fromkeys(("BAS-12", "BAS-13"), P.ADMIN),
    **dict.fromkeys(("MET-13", "MET-14", "MET-15"), P.ADMIN),
    **dict.fromkeys(("ACK-04", "ACK-05", "ACK-06", "ACK-07", "ACK-08", "ACK-09", "RET-06"), P.REPLICATION),
    **dict.fromkeys(("EPO-07", "EPO-08", "EPO-09", "EPO-10"), P.REPLICATION),
    **dict.fromkeys(("FET-14", "FET-19", "FET-20", "FET-22", "LOF-13", "IDM-17"), P.TRANSACTIONS),
    **dict.fromkeys(("COO-09", "OFF-17", "OFF-18", "OFF-29", "CMP-08"), P.TRANSACTIONS),
}
"""Id -> its profile, where that is not its area's: requirements about other in-sync replicas, transactions, or tools."""


def profile_of(id: str) -> ConformanceProfile:
    """The profile that a requirement belongs to."""
    return EXCEPTIONS.get(id, PROFILE_OF_AREA[id[:3]])
