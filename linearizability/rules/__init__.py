"""The rules, each in a module of its own, and their registry."""

from linearizability.rules import (
    duplicate,
    exactly_once,
    group_offsets,
    inconsistent_offsets,
    isolation,
    leader_epochs,
    linearizability,
    lost_write,
    not_delivered,
    offset_reuse,
    ownership,
    phantom_read,
    poll_order,
    poll_skip,
    progress,
    realtime_order,
    recency,
    registers,
    repeated_value,
    replica_divergence,
    send_order,
    transactions,
    unseen,
    watermarks,
    zombie_producer,
)
from linearizability.rules.rule import Rule, RunRule

PARTITION_RULES: tuple[Rule, ...] = (
    lost_write.RULE,
    unseen.RULE,
    not_delivered.RULE,
    phantom_read.RULE,
    duplicate.RULE,
    inconsistent_offsets.RULE,
    offset_reuse.RULE,
    repeated_value.RULE,
    realtime_order.APPENDS,
    realtime_order.FUTURE,
    linearizability.RULE,
    recency.END_OFFSET,
    recency.READ,
    poll_order.ACROSS,
    poll_order.WITHIN,
    poll_skip.ACROSS,
    poll_skip.WITHIN,
    send_order.ACROSS,
    send_order.WITHIN,
    send_order.SKIP,
    isolation.ABORTED,
    isolation.INTERMEDIATE,
    isolation.OWN,
    zombie_producer.RULE,
    group_offsets.REGRESSION,
    group_offsets.LOSS,
    group_offsets.PAST,
    ownership.RULE,
    ownership.FORMER,
    watermarks.HIGH_WATERMARK,
    watermarks.LAST_STABLE_OFFSET,
    watermarks.LOG_START,
    watermarks.ABOVE,
    leader_epochs.RULE,
    replica_divergence.RULE,
    registers.RULE,
    registers.UNDECIDED,
    progress.PROGRESS,
    progress.GAP,
)
"""Rules that judge one partition by itself."""

RUN_RULES: tuple[RunRule, ...] = (
    exactly_once.TWICE,
    exactly_once.PAST,
    exactly_once.ORDER,
    transactions.TORN,
    transactions.G0,
    transactions.G0_PROCESS,
    transactions.G0_REALTIME,
    transactions.G1C,
    transactions.G1C_PROCESS,
    transactions.G1C_REALTIME,
)
"""Rules that join what the partitions of a run know."""

RULES: dict[str, Rule | RunRule] = {rule.id: rule for rule in (*PARTITION_RULES, *RUN_RULES)}
"""All rules by id."""

FIVE = ("lost-write", "duplicate", "inconsistent-offsets", "nonmonotonic-poll", "phantom-read")
"""The first five rules; speed goals name them."""
