"""The models and the switches of the shorter books: the metadata quorum, transactions, groups, the ZooKeeper controller."""

from __future__ import annotations

from spec.models import Model, Switch

MODELS: tuple[Model, ...] = (
    Model(
        "MCQuorum",
        "quorum",
        switches=(
            Switch(
                "ForgetVote",
                "OneLeaderPerEpoch",
                "KIP-595; Raft 5.1",
                "The vote is not on disk before it is sent: after a restart the voter votes again in the same epoch, and two "
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
                "leader never received.",
            ),
        ),
    ),
    Model("MCQuorumSmall", "quorum", quick=True),
    Model("MCQuorumCandidates", "quorum", quick=True),
    Model("MCQuorumRestart", "quorum"),
    Model("MCQuorumParted", "quorum", quick=True),
    Model("MCQuorumPartedElection", "quorum"),
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
    Model("MCLateQuorum", "quorum", covered=False, workers=2),
    Model("MCLateQuorumPair", "quorum", covered=False),
    Model("MCLateQuorumParted", "quorum", covered=False),
    Model("SIMQuorum", "quorum", behaviours=1000),
    Model(
        "MCThreeVoters",
        "quorum",
        quick=True,
        switches=(
            Switch(
                "SecondChangeAtOnce",
                "OneLeaderPerEpoch",
                "KIP-853; Raft 6",
                "A leader appends a second change of voters before the first is committed: its own voters and those of the "
                "others differ by two, and two majorities have no voter in common.",
            ),
            Switch(
                "RemovedLeaderNeverStands",
                "SomeNodeCanLead",
                "KIP-853; Ongaro's thesis 4.2.2",
                "Of two voters the leader removes itself, and falls before the other one has that: by its own log it is no "
                "voter, and so no candidate; the other one needs its vote, and has the shorter log. So does Kafka 4.3.1 "
                "(finding removed_leader).",
            ),
        ),
    ),
    Model(
        "MCFewerVoters",
        "quorum",
        switches=(
            Switch(
                "RemovedLeaderCountsItself",
                "LeaderCompleteness",
                "KIP-853; Ongaro's thesis 4.2.2",
                "A leader that has removed itself goes on counting itself: with half of the voters that are left it commits what "
                "the other half, a majority of the new set, elects a leader without.",
            ),
        ),
    ),
    Model(
        "MCChangingVoters",
        "quorum",
        switches=(
            Switch(
                "ChangeBeforeEpochIsCommitted",
                "LeaderCompleteness",
                "KIP-853; bug in single-server changes, raft-dev 2015",
                "A new leader changes the voters before a record of its own epoch is committed: a change that an earlier leader "
                "appended, and that it does not know, may still come back. Of four voters each has removed another one, and two "
                "of three and the other two decide without each other.",
            ),
        ),
    ),
    Model(
        "MCTransactions",
        "transactions",
        switches=(
            Switch(
                "BeforeKip890",
                "NoHangingTransaction",
                "KIP-890",
                "The producer names the coordinator the partitions that take part, and a transaction's epoch is that of the last "
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
    Model("MCTransactionsSmall", "transactions"),
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
    Model("MCGroupsPair", "groups", quick=True),
    Model("MCGroupsTwoLosses", "groups"),
    Model("MCGroupsLiveness", "groups"),
    Model(
        "MCZooKeeperSessions",
        "historical",
        switches=(
            Switch(
                "WriteWithoutControllerEpoch",
                "DeposedControllersWriteNothing",
                "KAFKA-6082",
                "A controller was paused, its session expired and another took over. Awake again, in a new session, it reads the "
                "state and decides by the brokers that it remembers. ZooKeeper takes the decision, for it is not tied to the "
                "controller epoch.",
            ),
            Switch(
                "ExpiredSessionWrites",
                "EphemeralNodesHaveSessions",
                "sessions of ZooKeeper",
                "ZooKeeper takes what comes in a session that it has expired: an ephemeral node is made that belongs to no "
                "session, and will never vanish.",
            ),
        ),
    ),
    Model(
        "MCZooKeeperIsr",
        "historical",
        switches=(
            Switch(
                "WriteIsrWithoutVersion",
                "EpochsNeverDecrease",
                "the ZooKeeper controller; before KIP-497",
                "Before 2.7 the leader itself writes the state with another ISR. A leader that was replaced, and has not learned "
                "of it, writes over the newer state: its own leader epoch is back, and it leads again.",
            ),
        ),
    ),
    Model("MCZooKeeperMetadata", "historical"),
    Model(
        "MCZooKeeperReassignment",
        "historical",
        quick=True,
        switches=(
            Switch(
                "StopReplicaWithoutLeaderEpoch",
                "OnlyRemovedReplicasAreDeleted",
                "KIP-570",
                "A request to delete a removed replica timed out and was sent again. Its first copy arrives when the replica "
                "has been added again, has caught up and is in the ISR. Controller epoch and broker epoch are still the same: "
                "only the leader epoch shows that the request is old.",
            ),
        ),
    ),
    Model(
        "MCZooKeeperDeletion",
        "historical",
        switches=(
            Switch(
                "TakeFromDeposedController",
                "OnlyRemovedReplicasAreDeleted",
                "the ZooKeeper controller; KIP-570",
                "Brokers do not compare controller epochs. A deposed controller's request to delete a topic's replica, which "
                "names no leader epoch, arrives when its successor has finished the deletion and the topic was created again.",
            ),
        ),
    ),
    Model(
        "MCZooKeeperShutdown",
        "historical",
        switches=(
            Switch(
                "IgnoreBrokerEpoch",
                "StaleRequestsChangeNothing",
                "KIP-380",
                "A broker was stopped and came back before the controller looked. What the controller had sent to its earlier "
                "registration arrives now, and it acts by it.",
            ),
        ),
    ),
    Model("MCZooKeeperCrash", "historical", quick=True),
    Model("MCZooKeeperWriteIsr", "historical", quick=True),
    Model("MCZooKeeperTopic", "historical", quick=True),
    Model("MCZooKeeperNames", "historical"),
    Model("MCZooKeeperMoveDelete", "historical", quick=True),
    Model("MCZooKeeperStopDelete", "historical"),
    Model("MCZooKeeperLastMember", "historical", quick=True),
    Model("MCZooKeeperCrashStop", "historical"),
    Model("MCZooKeeperCrashExpire", "historical"),
    Model("MCZooKeeperDeposedLeader", "historical"),
    Model("MCZooKeeperController", "historical", quick=True),
    Model("MCZooKeeperLiveness", "historical", quick=True),
)
