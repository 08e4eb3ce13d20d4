"""Bugs of the metadata quorum: violations of Raft."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from linearizability.mutants.registry import mutant
from reference.controller.quorum_log import IN_LINE, Verdict

NO_NODE = -1


@mutant(
    "reference.controller.quorum_member:write_quorum_state",
    "A vote is not written down: after a restart the voter votes again in the same epoch.",
    fuzz=True, nodes=3,
)  # fmt: skip
def vote_forgotten(original: Any, disk: Any, folder: Any, state: Any) -> None:
    original(disk, folder, replace(state, voted=NO_NODE))


@mutant(
    "reference.controller.quorum_rules:next_commit",
    "Records of an earlier epoch are committed as soon as a majority has them.",
    fuzz=True, nodes=3,
)  # fmt: skip
def old_epoch_committed(original: Any, current: int, reached: int, epoch_start: int) -> int:
    return max(current, reached)


@mutant(
    "reference.controller.quorum_log:QuorumLog.compare",
    "The active controller sends records to any fetcher, whatever the fetcher's last epoch.",
    fuzz=True, nodes=3,
)  # fmt: skip
def divergence_unchecked(original: Any, log: Any, offset: int, epoch: int) -> Any:
    found = original(log, offset, epoch)
    return IN_LINE if found.verdict is Verdict.DIVERGING and offset <= log.end else found


@mutant(
    "reference.controller.quorum_leading:Leader._read_for",
    "The active controller serves fetches of any epoch, and takes them for progress in its own.",
    fuzz=True, nodes=3,
)  # fmt: skip
def fetch_across_epochs(
    original: Any, leader: Any, partition: Any, request: Any, replica: int = NO_NODE, now: int | None = None
) -> Any:
    asked, own = partition.current_leader_epoch, copy(partition)
    own.current_leader_epoch = leader.member.epoch
    response, has_news = original(leader, own, request, replica, now)
    if leader.member.is_leader:
        response.responses[0].partitions[0].current_leader.leader_epoch = asked
    return response, has_news


@mutant(
    "reference.controller.quorum_rules:is_up_to_date",
    "A voter gives its vote to a candidate whose log lacks what it has itself.",
    fuzz=True, nodes=3,
)  # fmt: skip
def shorter_log_elected(original: Any, epoch: int, end: int, own_epoch: int, own_end: int) -> bool:
    return True


@mutant(
    "reference.controller.quorum_member:Member.write_snapshot",
    "A snapshot says to reach to the end of the log, beyond what is committed.",
    fuzz=True, nodes=3,
)  # fmt: skip
def snapshot_ahead(original: Any, quorum: Any, end_offset: int, records: Any, now: int, level: int) -> Any:
    return quorum.log.write_snapshot(quorum.log.end, records, now, level)


# ---- changes of the voters (KIP-853)


@mutant(
    "reference.controller.quorum_member:Member.may_stand",
    "A leader that fell as it removed itself is no candidate: of two voters the other one waits for its vote for ever.",
    fuzz=True, nodes=3, coordination="changing-voters", breaks=("no-progress",),
)  # fmt: skip
def removed_leader_never_stands(original: Any, member: Any) -> bool:
    return bool(member.is_voter)
