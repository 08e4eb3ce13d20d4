"""All models and all switches, in the order in which they are to be read."""

from __future__ import annotations

from spec.models import Case, Model, Switch, cases

MODELS: tuple[Model, ...] = (
    Model(
        "MCFailover",
        "replication",
        quick=True,
        switches=(
            Switch(
                "TruncateToHighWatermark",
                "EligibleAreComplete",
                "KIP-101, scenario 1",
                "A follower learns the high watermark one fetch late. If it cuts its log to its own high watermark when a new "
                "reign begins, it throws away records that the leader has already counted and acknowledged. It is still in "
                "the ISR, so it can be elected, and then the records are gone.",
            ),
        ),
    ),
    Model(
        "MCTruncation",
        "replication",
        switches=(
            Switch(
                "TruncateByRequestedEpoch",
                "EligibleAreComplete",
                "KIP-279",
                "KIP-101 lets the follower ask where its last epoch ends in the leader's log, but the answer does not say "
                "which epoch the leader found. Where the leader never had that epoch, the offset belongs to another one: the "
                "logs agree in length and differ in content, and the follower is counted for records that it does not have.",
            ),
            Switch(
                "TruncateWithoutFencing",
                "EligibleAreComplete",
                "KIP-320, motivation",
                "The truncation point is right, but it may be asked of a leader of another epoch: a leader that was replaced "
                "and elected again, and has not heard of it yet, answers for its old reign.",
            ),
            Switch(
                "FetchWithoutFencing",
                "EligibleAreComplete",
                "KIP-320",
                "Divergence is detected with every fetch, but the fetch does not name the leader epoch in which it is meant. "
                "A follower of a newer reign is counted by a leader that still acts in an older one, with an ISR that no "
                "longer holds.",
            ),
        ),
    ),
    Model(
        "MCIsr",
        "replication",
        switches=(
            Switch(
                "IgnoreProposedIsr",
                "EligibleAreComplete",
                "KIP-497",
                "The leader proposed a member and the controller has accepted it, but the leader, who does not know yet, lets "
                "the high watermark pass without it. The new member can be elected without the record.",
            ),
            Switch(
                "RollBackCommittedIsr",
                "EligibleAreComplete",
                "KIP-497; found with this specification's predecessor",
                "A proposal is accepted, its answer lost, its retry refused as stale (INVALID_UPDATE_VERSION). The leader "
                "takes the refusal for the proposal's and goes back to the smaller ISR, while the controller counts the new "
                "member.",
            ),
            Switch(
                "IgnoreMinIsr",
                "EligibleAreComplete",
                "KIP-966",
                "The high watermark advances although the ISR is smaller than min.insync.replicas: whoever left the ISR and "
                "is still eligible to lead (ELR) lacks what was committed since.",
            ),
        ),
    ),
    Model(
        "MCFencing",
        "replication",
        quick=True,
        switches=(
            Switch(
                "AdmitFencedBroker",
                "NoFencedMemberInIsr",
                "KIP-841",
                "A broker that was fenced is proposed by a leader that has not heard of it. Admitted, it blocks the high "
                "watermark, or is elected while nobody hears from it.",
            ),
        ),
    ),
    Model(
        "MCProducer",
        "replication",
        switches=(
            Switch(
                "AcknowledgeBeforeHighWatermark",
                "NoAcknowledgedRecordLost",
                "documentation of acks",
                "acks=all answered as soon as the leader has appended: what acks=1 promises. The next leader never heard of "
                "the record.",
            ),
            Switch(
                "ForgetSequences",
                "NoDuplicateOrGap",
                "KIP-98",
                "The leader does not look at the producer's sequence numbers: a record whose answer was lost is appended "
                "again by the retry.",
            ),
        ),
    ),
    Model("MCShutdown", "replication"),
    Model(
        "MCRecovery",
        "replication",
        switches=(
            Switch(
                "LastReplicaStanding",
                "NoAcknowledgedRecordLost",
                "KIP-966",
                "Before ELR the last member stayed in the ISR whatever happened to it. It loses its un-fsynced tail in a "
                "crash and leads again, although others still have the records.",
            ),
            Switch(
                "AdmitStaleBrokerEpoch",
                "EligibleAreComplete",
                "KIP-903",
                "A follower had caught up, crashed, lost its tail and registered again. The leader proposes it for what it "
                "had in its earlier life, and the controller does not compare broker epochs.",
            ),
            Switch(
                "ElectOutsideIsr",
                "NoAcknowledgedRecordLost",
                "unclean.leader.election.enable",
                "No eligible replica is alive, and another is elected although unclean election is off.",
            ),
            Switch(
                "ServeBeforeReplay",
                "NoAcknowledgedRecordLost",
                "KIP-631",
                "A broker comes back and acts on the metadata that it had before: it still leads its old reign, with the log "
                "that the crash left it, and followers that have not heard otherwise cut theirs to match.",
            ),
        ),
    ),
    Model("MCUnclean", "replication"),
    Model(
        "MCReassignment",
        "replication",
        switches=(
            Switch(
                "KeepDroppedEligible",
                "EligibleAreComplete",
                "KIP-455 beside KIP-966",
                "A reassignment takes a replica away while the ISR is smaller than min.insync.replicas, and the replica stays in "
                "the ELR. With fewer replicas fewer are required: what is committed now it does not get, and when it is "
                "given back, it may be elected.",
            ),
        ),
    ),
    Model(
        "MCReconfiguration",
        "replication",
        switches=(
            Switch(
                "CommitBeforeMinIsr",
                "EligibleAreComplete",
                "KIP-966; found with this specification",
                "min.insync.replicas is raised while a leader's proposal to shrink the ISR is on its way. The controller keeps "
                "the member that leaves eligible, for so small an ISR commits nothing any more; the leader, who has the new ISR "
                "from the answer and not yet the new setting, commits with it.",
            ),
        ),
    ),
    Model("MCLarge", "replication", budget_s=1800, covered=False),
    Model("SIMReplication", "replication", behaviours=1000),
    Model("SIMReassignment", "replication", behaviours=1000),
    Model("MCLiveness", "replication"),
    Model("MCMessages", "replication"),
    Model(
        "MCProposals",
        "replication",
        budget_s=1800,
        covered=False,
        switches=(
            Switch(
                "RefusedProposalArrives",
                "EligibleAreComplete",
                "found with this specification",
                "A proposal was refused because its new member was fenced, and the leader went back to the smaller ISR. A copy "
                "of the same request, sent before and late, is taken when the member is no longer fenced: the controller "
                "counts a member that the leader does not. The epochs do not tell the copy from a proposal that still stands.",
            ),
        ),
    ),
    Model(
        "MCQuorum",
        "quorum",
        switches=(
            Switch(
                "ForgetVote",
                "OneLeaderPerEpoch",
                "KIP-595; Raft 5.1",
                "The vote is not on disk before it is told: after a restart the voter votes again in the same epoch, and two "
                "leaders rule it.",
            ),
            Switch(
                "VoteForShorterLog",
                "LeaderCompleteness",
                "KIP-595; Raft 5.4.1",
                "A voter grants its vote to a candidate whose log lacks what the voter has: a committed record is missing in "
                "the new leader's log.",
            ),
            Switch(
                "FetchAcrossEpochs",
                "LeaderCompleteness",
                "KIP-595",
                "A leader takes fetches of another epoch for progress in its own: a replaced leader commits what the new "
                "leader never heard of.",
            ),
        ),
    ),
    Model(
        "MCQuorumCommit",
        "quorum",
        budget_s=1800,
        covered=False,
        switches=(
            Switch(
                "CommitEarlierEpoch",
                "LeaderCompleteness",
                "KIP-595; Raft 5.4.2",
                "The leader counts a record of an earlier epoch as committed because a majority has it. A voter with a record "
                "of a later epoch can still be elected and overwrite it.",
                budget_s=1800,
            ),
        ),
    ),
    Model("SIMQuorum", "quorum", behaviours=1000),
    Model(
        "MCTransactions",
        "transactions",
        switches=(
            Switch(
                "BeforeKip890",
                "NoHangingTransaction",
                "KIP-890",
                "The producer tells the coordinator which partitions take part, and a transaction's epoch is that of the last "
                "one. A write that was delayed until its transaction had ended is appended, and opens a transaction that the "
                "coordinator knows nothing of: no marker will come, and readers of committed records wait for ever.",
            ),
            Switch(
                "MarkerBeforeDecision",
                "VisibleIsDecided",
                "KIP-98",
                "A marker is written before the decision is durable: some of a transaction becomes visible that is then "
                "aborted.",
            ),
            Switch(
                "KeepEpochOnNewSession",
                "VisibleIsDecided",
                "KIP-98",
                "A new session of a transactional id does not fence the one before: a late write of the old one is counted to "
                "the new one's transaction.",
            ),
        ),
    ),
    Model("MCTransactionsLiveness", "transactions"),
    Model(
        "MCGroups",
        "groups",
        switches=(
            Switch(
                "AssignBeforeRevocation",
                "NoDoubleAssignment",
                "KIP-848",
                "A partition is given to its new member before the old one has said that it gave it back: two members consume "
                "it at once.",
            ),
        ),
    ),
    Model("MCGroupsLiveness", "groups"),
    Model(
        "MCZooKeeperController",
        "historical",
        switches=(
            Switch(
                "WriteWithoutControllerEpoch",
                "OneLeaderPerEpoch",
                "the ZooKeeper controller; KAFKA-6082",
                "A controller was paused, its session ended and another took over. Awake again it decides by what it remembers, "
                "and ZooKeeper takes the decision, for it is not tied to the controller epoch: one leader epoch has two leaders.",
            ),
            Switch(
                "TakeFromDeposedController",
                "InSyncReplicasHaveTheLog",
                "the ZooKeeper controller; KIP-570",
                "Brokers do not compare controller epochs. A request of the deposed controller to delete a replica arrives after "
                "its successor has given the replica back, and what is counted as in sync is gone.",
            ),
        ),
    ),
    Model("MCZooKeeperControllerLiveness", "historical"),
)


def all_cases() -> dict[str, Case]:
    """Every case by its name; names are unique."""
    found = {case.name: case for case in cases(MODELS)}
    if len(found) != sum(1 for _ in cases(MODELS)):
        raise ValueError("two cases have one name")
    return found
