"""Bugs of groups: in generations and assignments, in the removal of members, and in committed offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from linearizability.mutants.registry import mutant
from reference.coordinator.classic_rebalances import synced
from reference.coordinator.classic_state import State
from reference.coordinator.consumer_group_records import decode_record

CONSUMER_GROUPS = "tests.coordinator.test_consumer_groups_machine:ConsumerGroupRun"


# ---- generations


@mutant(
    "reference.coordinator.classic_group:ClassicGroup.begin_generation",
    "A rebalance gives out the former generation again: no member of it is fenced.",
    fuzz=True,
    workload="groups",
)
def generation_given_out_again(original: Any, group: Any, now: int) -> None:
    original(group, now)
    group.generation = 1


@mutant(
    "reference.coordinator.classic_group:ClassicGroup.check_generation",
    "Whatever names a former generation is taken: heartbeats, assignments, commits.",
    caught_by=("GRP-12",),
    fuzz=True,
    workload="groups",
)
def generation_unchecked(original: Any, group: Any, generation: int) -> None:
    return


@mutant(
    "reference.coordinator.classic_groups:ClassicGroups._sync",
    "Who asks for its part before the leader has brought the assignment is given that of the generation before.",
    fuzz=True,
    workload="groups",
)
def sync_answered_from_the_former_generation(original: Any, groups: Any, request: Any, token: Any, now: int) -> None:
    original(groups, request, token, now)
    group = groups._get(request.group_id)
    member = group.members.get(request.member_id)
    if group.state is State.COMPLETING_REBALANCE and member is not None and member.assignment:
        groups.rebalances.answer_sync(member, synced(group, member))


@mutant(
    "reference.coordinator.classic_group:ClassicGroup.have_all_joined",
    "A generation begins with the members that joined first; those that are still rejoining are removed.",
    fuzz=True,
    workload="groups",
)
def generation_without_stragglers(original: Any, group: Any) -> bool:
    return True


# ---- members that left or failed


@mutant(
    "reference.coordinator.classic_rebalances:Rebalances._member_expired",
    "A member that died keeps its partitions for ever: sessions do not end.",
    caught_by=("GRP-13",),
    fuzz=True,
    workload="groups",
)
def session_never_ends(original: Any, rebalances: Any, group: Any, member_id: str, now: int) -> None:
    return


@mutant(
    "reference.coordinator.classic_rebalances:Rebalances._member_expired",
    "A member id that was given out and expires unused sends the whole group into a rebalance.",
    caught_by=("GRP-50",),
)
def unused_id_makes_a_rebalance(original: Any, rebalances: Any, group: Any, member_id: str, now: int) -> None:
    is_unused = member_id in group.pending_members
    original(rebalances, group, member_id, now)
    if is_unused and group.state is State.STABLE:
        rebalances.prepare(group, now)


@mutant(
    "reference.coordinator.classic_group:ClassicGroup.check_member",
    "The former member of an instance id goes on beside the one that has taken its place.",
    caught_by=("GRP-21",),
    fuzz=True,
    workload="groups",
)
def static_member_not_fenced(original: Any, group: Any, id: str, instance_id: str | None) -> Any:
    current = group.static_members.get(instance_id)
    return original(group, current or id, instance_id)


# ---- offsets


@mutant(
    "reference.coordinator.classic_group:ClassicGroup.check_commit",
    "A commit is taken from any sender: a removed member overwrites its successor's offsets.",
    caught_by=("OFF-05", "OFF-06", "OFF-07"),
    fuzz=True,
    workload="groups",
)
def committed_before_generation_check(
    original: Any,
    group: Any,
    member_id: str,
    instance_id: str | None,
    generation: int,
    version: int,
    transactional: bool,
) -> None:
    return


@mutant(
    "reference.coordinator.group_shard:GroupShard.loaded",
    "A coordinator that loads its partition forgets a group's first committed offset.",
    fuzz=True,
    workload="groups",
)
def offsets_lost_at_failover(original: Any, shard: Any, now: int) -> None:
    for offsets in shard.offsets._committed.values():
        offsets.pop(min(offsets))
    original(shard, now)


@mutant(
    "reference.node.coordination:Coordination.answer",
    "A commit is acknowledged when it is in the coordinator's own log: another coordinator does not know it.",
    fuzz=True,
    nodes=3,
    workload="groups",
)
def commit_answered_before_it_is_replicated(
    original: Any, coordination: Any, index: int, request: Any, response: Any, now: int, fail: Any
) -> None:
    coordination._context.responder.respond(request, response)


@mutant(
    "reference.coordinator.group_expiry:_expired_offsets",
    "Offsets expire from their commit on, also those of topics that the group's members consume.",
    caught_by=("OFF-15",),
)
def offsets_of_a_live_group_expire(original: Any, group: Any, offsets: Any, retention_ms: int, now: int) -> list[Any]:
    class Idle:
        id = group.id

        def expires_from(self, committed_at: int) -> int:
            return committed_at

        def is_subscribed_to(self, topic: str) -> bool:
            return False

    return original(Idle(), offsets, retention_ms, now)


@mutant(
    "reference.coordinator.offsets:Offsets.expired",
    "An offset expires while a transaction with another one for its partition is open: an abort leaves none.",
    caught_by=("OFF-15",),
)
def offsets_expire_under_open_transactions(
    original: Any, offsets: Any, group: Any, place: Any, now: int, since: int, retention_ms: int
) -> bool:
    return offsets.of(group)[place].is_expired(now, since, retention_ms)


# ---- KIP-848


@mutant(
    "reference.coordinator.consumer_groups:ConsumerGroups.replay",
    "KIP-848: a group is not loaded where compaction has left the tombstone of a group or member alone (KAFKA-17306).",
    fuzz=True, workload="groups", breaks=("record-not-loaded", "node-failure"),
)  # fmt: skip
def lone_tombstones_not_loaded(original: Any, groups: Any, key: Any, value: Any) -> None:
    decoded: Any = decode_record(key, value) or (None, value)
    table, change = decoded
    group = groups._groups.get(table.group_id) if table is not None else None
    known = getattr(group, "members", ())
    if table is not None and change is None and (group is None or getattr(table, "member_id", "") not in ("", *known)):
        raise ValueError(f"{table} has nothing to remove")
    original(groups, key, value)


@mutant(
    "reference.coordinator.reconciliation:_still_owns",
    "KIP-848: a partition that a member is to give up is given to another before the member says that it has.",
    caught_by=("CGH-09",),
    fuzz=True,
    workload="groups",
    machine=CONSUMER_GROUPS,
)
def revoked_partitions_given_at_once(original: Any, owned: Any, revoked: Any) -> bool:
    return False


@mutant(
    "reference.coordinator.reconciliation:reconcile",
    "KIP-848: a member gets all of its target at once, even what another member still owns.",
    caught_by=("CGH-09",),
    fuzz=True,
    workload="groups",
    machine=CONSUMER_GROUPS,
)
def held_partitions_called_free(original: Any, member: Any, target: Any, owned: Any, subscription_changed: bool) -> Any:
    return original(member, replace(target, is_free=lambda partition: True), owned, subscription_changed)


@mutant(
    "reference.coordinator.consumer_groups:ConsumerGroups.check_room",
    "KIP-848: a static member that comes back into a full group is refused, as in Apache Kafka before 4.4 (KAFKA-20601).",
    caught_by=("CGH-43",),
)
def returning_member_needs_a_place(
    original: Any, groups: Any, group: Any, member_id: str, instance_id: str | None
) -> None:
    original(groups, group, member_id, None)
