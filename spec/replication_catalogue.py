"""The models and the switches of replication, in the order in which they are to be read."""

from __future__ import annotations

from spec.models import Model, Switch

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
                "leader epoch begins, it throws away records that the leader has counted and acknowledged. It is still in "
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
                "and elected again, and has not learned of it yet, answers for its old leader epoch.",
            ),
            Switch(
                "FetchWithoutFencing",
                "EligibleAreComplete",
                "KIP-320",
                "Divergence is detected with every fetch, but the fetch does not name the leader epoch in which it is meant. "
                "A follower of a newer leader epoch is counted by a leader that still acts in an older one, with an ISR that no "
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
                "The high watermark advances although the ISR is smaller than min.insync.replicas: a replica outside of it that "
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
                "A broker that was fenced is proposed by a leader that has not learned of it. Admitted, it blocks the high "
                "watermark, or is elected while no broker receives anything from it.",
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
                "acks=all answered as soon as the leader has appended: what acks=1 promises. The next leader never received "
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
                "had in its earlier incarnation, and the controller does not compare broker epochs.",
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
                "A broker comes back and acts on the metadata that it had before: it still leads in its old epoch, with the log "
                "that the crash left it, and followers without newer metadata cut theirs to match.",
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
    Model("MCExpansion", "replication"),
    Model("MCFencedProposal", "replication"),
    Model("MCLeadsAgain", "replication", quick=True),
    Model("MCStepsElect", "replication"),
    Model("MCStepsCrash", "replication"),
    Model("MCThreeEpochs", "replication"),
    Model("MCStopAfterCrash", "replication"),
    Model("MCNewcomer", "replication"),
    Model("MCReplacement", "replication"),
    Model("MCMinIsrIsSet", "replication"),
    Model("MCUncleanFence", "replication"),
    Model("MCUncleanLeaders", "replication"),
    Model("MCFollowers", "replication", quick=True),
    Model("MCReassignmentGrowth", "replication", quick=True),
    Model("MCReassignmentCalledOff", "replication", quick=True),
    Model("MCCheckpoints", "replication"),
    Model("MCLarge", "replication", budget_s=1800, covered=False, workers=2),
    Model("SIMReplication", "replication", behaviours=1000),
    Model("SIMReassignment", "replication", behaviours=1000),
    Model("MCLiveness", "replication"),
    Model("MCMessages", "replication"),
    Model("MCMessagesGrowth", "replication", quick=True),
    Model(
        "MCMessagesCrash",
        "replication",
        switches=(
            Switch(
                "FetchOfFormerIncarnation",
                "EligibleAreComplete",
                "KIP-903; found with this specification",
                "A follower fetched, crashed and lost its tail; its new incarnation has fetched, and is proposed. The fetch of "
                "its former incarnation arrives late and is counted: the leader takes the follower to have what it has lost. The "
                "reference compares broker epochs (the mutant former-incarnation-unnoticed takes that away, with the other "
                "comparisons of incarnations).",
            ),
        ),
    ),
    Model("MCMessagesLeadsAgain", "replication"),
    Model("MCMessagesTwoRecords", "replication"),
    Model("MCMessagesThreeRecords", "replication"),
    Model("MCMessagesPartedLogs", "replication"),
    Model("MCMessagesShutdown", "replication"),
    Model("MCMessagesFence", "replication"),
    Model("MCMessagesElect", "replication"),
    Model("MCMessagesMinIsr", "replication"),
    Model("MCMessagesReassign", "replication"),
    Model("MCMessagesUnclean", "replication"),
    Model(
        "MCProposals",
        "replication",
        budget_s=1800,
        covered=False,
        workers=2,
        switches=(
            Switch(
                "RefusedProposalArrives",
                "EligibleAreComplete",
                "found with this specification",
                "A proposal was refused because its new member was fenced, and the leader went back to the smaller ISR. A copy "
                "of the same request, sent before and late, is taken when the member is no longer fenced: the controller "
                "counts a member that the leader does not. The epochs do not distinguish the copy from a pending proposal.",
            ),
        ),
    ),
)
