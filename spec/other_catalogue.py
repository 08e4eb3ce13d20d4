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
    Model("MCQuorumRestart", "quorum"),
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
    Model("MCZooKeeperPair", "historical", quick=True),
    Model("MCZooKeeperControllerLiveness", "historical"),
)
