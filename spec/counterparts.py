"""The part of TRACEABILITY.md that is kept by hand: folders to search, requirements, and reasons for missing counterparts.

The tables' keys are book (folder of the specification) and step; `traceability.py` finds the rest in the sources.
"""

from __future__ import annotations

REPLICAS = ("leader", "follower", "partition")
CONTROLLER = ("brokers", "elections", "isr_proposals", "reassignments", "decision_tracing")

BOOKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "replication": (
        "Replication",
        (
            *(f"reference/replication/{name}.py" for name in REPLICAS),
            *(f"reference/controller/{name}.py" for name in CONTROLLER),
        ),
    ),
    "quorum": ("The metadata quorum", ("reference/controller/quorum",)),
    "transactions": ("Transactions", ("reference/coordinator/transaction",)),
    "groups": (
        "Consumer groups (KIP-848)",
        ("reference/coordinator/consumer_groups", "reference/coordinator/consumer_heartbeat"),
    ),
    "historical": (
        "A cluster beside ZooKeeper",
        (
            "reference/node/zookeeper/",
            *(f"reference/replication/{name}.py" for name in REPLICAS),
            *(f"reference/controller/{name}.py" for name in CONTROLLER),
        ),
    ),
}
"""Folder of the specification -> its title, and the path prefixes of the files to search for its methods and events."""

METHODS = {("transactions", "TakeOver"): "loaded"}
"""Steps whose method has another name in the broker: `loaded` is a method of all shards of coordinators."""

REQUIREMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "replication": {
        "RegisterBroker": ("REP-14", "REP-17", "ELE-17"),
        "UnfenceBroker": ("REP-14", "ELE-02"),
        "FenceBroker": ("REP-05", "REP-06", "ELE-01"),
        "ControlledShutdown": ("ELE-08", "REP-14"),
        "AlterPartition": ("REP-13", "REP-14"),
        "ElectLeader": ("ELE-04", "EPO-08"),
        "ElectUncleanLeader": ("ELE-02", "ELE-03", "ELE-06"),
        "Reassign": ("ELE-11", "ELE-12", "ELE-14"),
        "CallOffReassignment": ("ELE-15",),
        "ChangeMinIsr": ("REP-07", "ACK-09"),
        "BecomeLeader": ("ELE-01", "EPO-08", "EPO-04"),
        "BecomeFollower": ("EPO-08", "ELE-10"),
        "CommitIsr": ("REP-03", "REP-13"),
        "LearnMinIsr": ("REP-07",),
        "GiveUpReplica": ("ELE-11",),
        "AnswerFetch": ("REP-01", "EPO-01", "EPO-07"),
        "AppendFetched": ("REP-08", "EPO-09"),
        "AdoptHighWatermark": ("REP-12",),
        "Truncate": ("REP-09", "REP-10", "EPO-07", "EPO-10"),
        "AdvanceHighWatermark": ("REP-01", "REP-07"),
        "ExpandIsr": ("REP-04", "REP-19"),
        "ShrinkIsr": ("REP-03", "REP-06", "REP-15"),
        "RollBackIsr": ("REP-14",),
        "Crash": ("REP-17", "REP-16"),
        "ShutDown": ("ELE-08", "REP-16"),
        "Restart": ("REP-16", "REP-17"),
        "Produce": ("ACK-01", "ACK-05", "ACK-07", "IDM-03"),
        "Retry": ("IDM-03", "IDM-04"),
        "Acknowledge": ("ACK-04", "ACK-06", "REP-02"),
        "Consume": ("REP-11", "FET-03"),
    },
    "quorum": {
        "BecomeProspective": ("ELE-16",),
        "GrantPreVote": ("ELE-16",),
        "BecomeCandidate": ("ELE-16",),
        "GrantVote": ("ELE-16",),
        "BecomeLeader": ("ELE-16",),
        "LearnEpoch": ("ELE-16",),
        "Restart": ("ELE-16",),
    },
    "transactions": {
        "AddPartitions": ("TXN-07", "TXN-08", "TXN-10", "TXN-18"),
        "EndTransaction": ("TXN-11", "TXN-12", "TXN-13", "TXN-14"),
        "TimeOut": ("TXN-20",),
        "NewSession": ("TXN-01", "TXN-02", "TXN-05", "TXN-06"),
        "WriteMarker": ("TXV-04", "TXV-07"),
        "CompleteTransaction": ("TXN-12", "TXV-02"),
        "TakeOver": ("TXV-10",),
        "AppendWrite": ("TXN-16", "TXV-12"),
        "AppendMarker": ("TXV-04", "TXV-05"),
    },
    "groups": {
        "JoinGroup": ("CGH-02", "CGH-05"),
        "LeaveGroup": ("CGH-10",),
        "RaiseGroupEpoch": ("CGH-15",),
        "UpdateTarget": ("CGH-04", "CGH-15", "CGH-18"),
        "Heartbeat": ("CGH-06", "CGH-08", "CGH-09"),
        "LoseMember": ("CGH-13",),
    },
}
"""Book -> step -> ids of requirements of the conformance suite."""

UNSEEN = "no client sees it: no requirement"

NO_REQUIREMENT: dict[str, dict[str, str]] = {
    "quorum": dict.fromkeys(
        ("AppendRecord", "AppendVoters", "AnswerFetch", "ApplyFetch", "AdvanceHighWatermark"), UNSEEN
    ),
}
"""Steps without a requirement, and why."""

NO_METHOD: dict[str, dict[str, str]] = {
    "replication": {
        "Crash": "happens to the broker: no code of it runs",
        "Retry": "a leader that appends cannot distinguish a retry from a first attempt: `produce`, after the sequence check",
    },
    "quorum": {
        "GrantPreVote": "in `on_vote`: the candidate traces it upon the response, since the voter changes nothing",
        "LearnEpoch": "in all methods that receive a request or a response",
        "AppendRecord": "in `append`, and in `become_leader` for the first of a leader epoch",
        "Restart": "at the end of a member's construction",
    },
}
"""Steps without a method of the broker, and why."""

NO_EVENT: dict[str, dict[str, str]] = {
    "replication": {
        "Crash": "written by the world that kills the process",
        "Retry": "traced as Produce",
    },
}
"""Steps that the broker does not trace by their names, and why."""

UNCALLED = {("replication", "Consume"): "no fetch calls the method yet: what was read is in no broker's trace"}
"""Steps whose method exists, but is never called by a broker."""

NOT_THE_BROKERS: dict[str, dict[str, str]] = {
    "transactions": {
        "SendWrite": "the client's",
        "DropWrite": "the network's",
        "AppendWrite": "a partition leader's: traced as Produce, with the producer",
        "AppendMarker": "a partition leader's: traced as Produce, with producer and marker",
    },
    "groups": {
        "TakeAnswer": "the client's",
        "LoseAnswer": "the network's",
        "LetGo": "the client's",
    },
}
"""Steps of another party than the book's own, and that party: they have neither a method nor an event of their name."""

OF_MESSAGES = "a step of the message grain: the broker traces the atomic one, which this refines"
"""Why TRACEABILITY.md has no line for the steps of `Messages.tla`."""

NOT_BY_NAME = {
    "historical": "traces are checked (`tests/spec/test_zookeeper_traces.py`); methods are named by what is asked of ZooKeeper",
}
"""Books whose steps need no methods of the same name in the broker, and why."""
