"""Switches that are changes of a definition's text: each rule, and each promise, that no bug of the modules has to do with.

The modules' own switches (`KnownBugs`) are the errors that were made, or might well be made, by those who build a log. These
show that a rule is needed, and that a promise can be broken: they are kept out of the reader's way.
"""

from __future__ import annotations

from spec import rule_switches, zookeeper_switches
from spec.models import Edit, Switch

Row = tuple[str, str, str, str, str, str]

ROWS: dict[str, tuple[Row, ...]] = {
    "MCFailover": (
        (
            "CommitAlone",
            "LeaderCompleteness",
            "Replica.AdvanceHighWatermark",
            "MaximalIsr(l)",
            "{}",
            "The leader commits what no other replica has.",
        ),
        (
            "LowerHighWatermark",
            "HighWatermarkMonotoneInEpoch",
            "Replica.AdvanceHighWatermark",
            "highWatermark[l] < offset",
            "TRUE",
            "The leader takes back what it called committed.",
        ),
    ),
    "MCTruncation": (
        (
            "KeepProgress",
            "EligibleAreComplete",
            "Replica.BecomeLeader",
            "[progress EXCEPT ![b] = NoProgress]",
            "progress",
            "A broker that leads again counts what its followers had in its earlier leader epoch. One of them has truncated its "
            "log since.",
        ),
        (
            "CommitApart",
            "CommittedLogsAgree",
            "Replica.AdvanceHighWatermark",
            "MaximalIsr(l)",
            "{}",
            "Two leaders commit different records, each by itself.",
        ),
        (
            "AppendInNewestEpoch",
            "LogMatching",
            "Client.AppendTo",
            "metadata[l].leaderEpoch",
            "partition.leaderEpoch",
            "A leader that was replaced appends in the leader epoch of its successor.",
        ),
        (
            "AppendInFormerEpoch",
            "EpochsNeverDecreaseInLog",
            "Client.AppendTo",
            "metadata[l].leaderEpoch",
            "metadata[l].leaderEpoch - Min(1, Len(@))",
            "A leader appends all but its first record in the leader epoch before its own.",
        ),
    ),
    "MCIsr": (
        (
            "KeepJoinedEligible",
            "IsrAndElrAreDisjoint",
            "Controller.EligibleAfter",
            "(record.isr \\cup unclean)",
            "unclean",
            "A member of the ISR stays in the ELR.",
        ),
    ),
    "MCRecovery": (
        (
            "LeadOutsideIsr",
            "LeaderIsInIsr",
            "Controller.Elections",
            "IF b \\in next.isr THEN @ ELSE {b}",
            "@",
            "A leader that is elected from the ELR does not join the ISR.",
        ),
    ),
    "MCUnclean": (
        (
            "KeepHighWatermark",
            "HighWatermarkBound",
            "Replica.Truncate",
            "[highWatermark EXCEPT ![f] = Min(@, point)]",
            "highWatermark",
            "A truncation leaves the high watermark above the log end offset.",
        ),
    ),
    "MCReassignment": (
        (
            "EligibleByFormerReplicas",
            "EligibleAreReplicas",
            "Controller.EligibleAfter",
            "ELSE record.replicas",
            "ELSE partition.replicas",
            "Who has a replica is asked of the record before: a replica that is dropped stays in the ELR.",
        ),
    ),
    "MCExpansion": (
        (
            "ExpandBelowEpochStart",
            "EligibleAreComplete",
            "Replica.ExpandIsr",
            "progress[l][f].end >= StartOffsetOf(log[l], metadata[l].leaderEpoch)",
            "TRUE",
            "A new leader may know less of what is committed than the one before it. A follower that has all below its high "
            "watermark, but not all that the leader epoch began with, joins the ISR without a committed record.",
        ),
        (
            "ConsumeUncommitted",
            "ConsumedNeverChanges",
            "Client.Consume",
            "Min(Reads, highWatermark[b])",
            "Min(Reads, Len(log[b]))",
            "A consumer reads above the high watermark; the next leader does not have the record.",
        ),
    ),
    "MCFencedProposal": (
        (
            "AcceptStalePartitionEpoch",
            "MaximalIsrIsSuperset",
            "Controller.IsForThisEpoch",
            "proposal.partitionEpoch = partition.partitionEpoch",
            "TRUE",
            "A proposal is accepted although a newer record exists: the ISR has a member that the leader does not count.",
        ),
    ),
    "MCLeadsAgain": (
        (
            "KeepProposal",
            "ProposalsAreCurrent",
            "Replica.BecomeLeader",
            "[pending EXCEPT ![b] = None]",
            "pending",
            "A broker that leads again still waits for the answer to a proposal of its earlier leader epoch.",
        ),
    ),
    "MCReassignmentGrowth": (
        (
            "EndReassignmentEarly",
            "ReassignmentsEndInSync",
            "Controller.Completed",
            "~(needed \\subseteq isr)",
            "needed \\cap isr = {}",
            "Two replicas are added, one of them is in sync, and the reassignment is called complete.",
        ),
        (
            "KeepLeaverInIsr",
            "TypeOK",
            "Controller.Completed",
            "!.isr = isr, ",
            "",
            "A replica that is removed stays in the ISR.",
        ),
    ),
    "MCCheckpoints": (
        (
            "CheckpointAboveHighWatermark",
            "EligibleAreComplete",
            "Replica.Restart",
            "checkpoint <= Min(highWatermark[b], end)",
            "checkpoint <= end",
            "A broker comes back and takes its log end offset for its high watermark.",
        ),
        (
            "UnfenceBeforeReplay",
            "UnfencedHaveReplayed",
            "Controller.UnfenceBroker",
            "HasReplayed(b)",
            "TRUE",
            "A broker is unfenced as soon as it has registered, and may be elected while it knows nothing of the partition.",
        ),
        (
            "ForgetBrokerEpochs",
            "EpochsNeverDecrease",
            "Controller.RegisterBroker",
            "@.brokerEpoch + 1",
            "0",
            "Broker epochs begin again with every registration.",
        ),
    ),
    "MCLiveness": (
        (
            "ElectNone",
            "LeaderAppears",
            "Controller.Elections",
            "electable # {}",
            "FALSE",
            "A leader that is gone is not replaced.",
        ),
        (
            "ExpandAboveHighWatermark",
            "IsrIsRestored",
            "Replica.ExpandIsr",
            "progress[l][f].end >= highWatermark[l]",
            "progress[l][f].end > highWatermark[l]",
            "A follower joins only with more than what is committed: one that has all never does.",
        ),
        (
            "IgnoreIsrRecords",
            "MetadataConverges",
            "Replica.CommitIsr",
            "record.leaderEpoch = metadata[l].leaderEpoch",
            "FALSE",
            "The leader replays no ISR.",
        ),
        (
            "TruncateOneShort",
            "HighWatermarkCatchesUp",
            "Replica.Truncate",
            "Prefix(@, point)",
            "Prefix(@, Min(point + 1, EndOffset(@)))",
            "The first record that differs stays: the follower truncates for ever, and never fetches.",
        ),
        (
            "WaitForRefusedProposal",
            "ProposalsAreResolved",
            "Replica.RollBackIsr",
            "WasRefused(l)",
            "FALSE",
            "A proposal that was refused stays pending.",
        ),
        (
            "AcknowledgeOneLate",
            "ProduceEnds",
            "Client.Acknowledge",
            "Prefix(log[l], highWatermark[l])",
            "Prefix(log[l], highWatermark[l] - 1)",
            "A record is acknowledged only when the high watermark has passed the next one, too.",
        ),
    ),
    "MCMessages": (
        (
            "CountDivergedFetch",
            "LateSpec",
            "Messages.TakeFetch",
            "IF parts \\/ progress",
            "IF progress",
            "The leader counts a follower whose log differs from its own.",
        ),
    ),
    "MCQuorum": (
        (
            "AppendToDivergedLog",
            "LogMatching",
            "Quorum.ApplyFetch",
            "IF InLine(f, l) THEN Prefix(log[l], Lesser(EndOffset(log[f]) + 1, EndOffset(log[l])))",
            "IF EndOffset(log[f]) < EndOffset(log[l]) THEN Append(log[f], log[l][EndOffset(log[f]) + 1])",
            "A follower appends to a log that is not a prefix of the leader's.",
        ),
        (
            "AdoptUnseenHighWatermark",
            "HighWatermarkBound",
            "Quorum.Take",
            "Lesser(committed, EndOffset(records))",
            "committed",
            "A follower takes the leader's high watermark although its log does not reach there.",
        ),
        (
            "KeepDivergedLog",
            "CommittedLogsAgree",
            "Quorum.ApplyFetch",
            "ELSE Prefix(log[f], common)",
            "ELSE log[f]",
            "A follower keeps records that the leader does not have, and calls them committed.",
        ),
        (
            "JoinOlderEpoch",
            "EpochsNeverDecrease",
            "Quorum.LearnEpoch",
            "epoch[other] > epoch[v]",
            "epoch[other] # epoch[v]",
            "A voter goes back to an epoch that is over.",
        ),
    ),
    "MCLateQuorum": (
        (
            "VoteTwice",
            "KeepsPromises",
            "Quorum.GrantVote",
            "/\\ free",
            "/\\ TRUE",
            "A voter votes for two candidates of one epoch, and two leaders rule it.",
        ),
    ),
    "MCTransactions": (
        (
            "LowerProducerEpoch",
            "ProducerEpochsNeverDecreaseInLog",
            "Transactions.EndTransaction",
            "producer.epoch + 1",
            "producer.epoch - 1",
            "The epoch falls with the end of a transaction.",
        ),
        (
            "AbortDecided",
            "DecisionsAreFinal",
            "Transactions.NewSession",
            'coordinator.state \\in {"empty", "ongoing"}',
            'coordinator.state \\in {"empty", "ongoing", "prepared"}',
            "A new session aborts what is decided, and not yet marked.",
        ),
    ),
    "MCTransactionsLiveness": (
        (
            "ForgetMarkers",
            "DecidedIsCompleted",
            "Transactions.HasMarker",
            "@ \\ {p}",
            "@",
            "The coordinator never learns that a marker is written.",
        ),
    ),
    "MCGroups": (
        (
            "ForgetRevoking",
            "OwnedIsGiven",
            "Groups.Reconcile",
            "![m] = revoked",
            "![m] = {}",
            "The coordinator forgets what a member has still to give back.",
        ),
        (
            "GiveGroupEpoch",
            "MemberEpochIsNotAhead",
            "Groups.Reconcile",
            "![m] = assignedEpoch",
            "![m] = groupEpoch",
            "A member gets an epoch for which there is no target yet.",
        ),
    ),
    "MCGroupsLiveness": (
        (
            "KeepFreePartitions",
            "Converges",
            "Groups.Reconcile",
            "Free(p, m) \\/",
            "FALSE \\/",
            "A partition that no member holds is assigned to none.",
        ),
    ),
    "MCZooKeeperMetadata": (
        (
            "NameOldLeaders",
            "MetadataNeverGoesBack",
            "ZooKeeperBroker.Takes",
            "~IsOfDeposedController(b, request)",
            "TRUE",
            "A deposed controller's UpdateMetadata is taken after its successor's.",
        ),
    ),
    "MCZooKeeperLiveness": (
        (
            "ElectUnregistered",
            "ControllerAppears",
            "ZooKeeperController.ElectController",
            "registered[b] # 0",
            "registered[b] = 0",
            "A broker that is not registered becomes the controller.",
        ),
        (
            "SkipNextEpoch",
            "BrokersFollowTheState",
            "ZooKeeperBroker.IsNews",
            "request.leaderEpoch > role[b].leaderEpoch",
            "request.leaderEpoch > role[b].leaderEpoch + 1",
            "A broker does not act by the next leader epoch.",
        ),
    ),
}
"""Model -> switch, the promise that it breaks, the definition, what stands there, what instead, and the story."""

SOURCE = "found by mutating the specification"


def edited_switches(model: str) -> tuple[Switch, ...]:
    """The switches of a model that are changes of the text."""
    rows = ROWS | rule_switches.ROWS | zookeeper_switches.ROWS
    return tuple(
        Switch(name, violates, SOURCE, story, edit=Edit(definition, was, becomes))
        for name, violates, definition, was, becomes, story in rows.get(model, ())
    )
