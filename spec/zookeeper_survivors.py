"""Why each mutant of the book of ZooKeeper that no model noticed is no fault (`survivors.py`)."""

from __future__ import annotations

from spec.reasons import ENVIRONMENT, RATION, UNCHANGED

GONE = "a process that is gone knows nothing (MemoryFitsProcess), so the other conditions refuse it"
UNREAD = (
    "a controller that has not read what there is takes no broker for live, and knows no state (ControllersReadFirst)"
)
READ = "what is read is the state as it is; what is written asks for a session (MayWrite)"
DEPOSED = "a deposed controller may know more of brokers: its epoch is not the newest, so it decides nothing (MayWrite)"
NAMES = "a follower of the same leader epoch names it: it leads (OneLeaderPerEpoch)"
SAME = "in one leader epoch all replicas follow the same leader (OneLeaderPerEpoch)"
WRITTEN = "over the version that the leader knows: the state has its name and its leader epoch already"
LOG = "a leader has its log (FollowersHaveTheLog)"

REASONS: tuple[tuple[str, str], ...] = (
    (
        "ZooKeeperController.DeleteTopic.guard1",
        "an administrator's request: the models have one, and the topic is there until it comes",
    ),
    ("ZooKeeperController.StartTopicDeletion.guard2", READ),
    (
        "ZooKeeperController.CompleteTopicDeletion.reset6",
        "what it remembers of the topic it writes nowhere (WriteState), and replaces with the next topic (CreateTopic)",
    ),
    ("ZooKeeperController.CreateTopic.reset2", "it reads the state that it has written (UpdateLeaderAndIsrCache)"),
    (
        "ZooKeeperBroker.WriteIsr.guard2",
        "the write is over the version that the leader knows: it replaces nothing newer",
    ),
    ("ZooKeeperBroker.WriteIsr.reset3", WRITTEN),
    ("ZooKeeperBroker.WriteIsr.reset4", WRITTEN),
    ("ZooKeeperBroker.ShrinkIsr.guard1", "only who leads has an ISR (RoleBy)"),
    ("ZooKeeperBroker.AdvanceHighWatermark.guard3", "who leads another topic has no records of this one (RecordsOf)"),
    ("ZooKeeper.HasSession.guard1", "only a process that runs has a session (MemoryFitsProcess)"),
    ("ZooKeeper.SessionExpired.guard1", ENVIRONMENT),
    (
        "ZooKeeper.Halt.reset9",
        "what is on its way to a process that ended is for an earlier broker epoch, and refused (IsForEarlierRegistration)",
    ),
    ("ZooKeeper.Crash.guard1", ENVIRONMENT),
    ("ZooKeeper.ShutDown.guard1", ENVIRONMENT),
    ("ZooKeeper.Restart.guard1", UNCHANGED),
    ("ZooKeeperController.IsActive.guard1", GONE),
    (
        "ZooKeeperController.ElectController.guard1",
        "who has the broker epoch that is registered has the session that it was registered in (MemoryFitsProcess)",
    ),
    ("ZooKeeperController.ResignController.guard1", GONE),
    ("ZooKeeperController.ResignController.guard2", UNCHANGED),
    ("ZooKeeperController.UpdateMetadataTo.guard1", RATION),
    ("ZooKeeperController.OnControllerFailover.guard1", READ),
    ("ZooKeeperController.BrokerFailure.guard1", UNREAD),
    ("ZooKeeperController.BrokerFailure.guard2", DEPOSED),
    (
        "ZooKeeperController.BrokerFailure.guard3",
        "who is taken for dead does not shut down, and is sent nothing (TheDeadAreSentNothing): nothing changes",
    ),
    ("ZooKeeperController.BrokerStartup.guard2", DEPOSED),
    (
        "ZooKeeperController.BrokerStartup.guard4",
        "who is not registered is sent nothing, and stays dead for the controller: nothing changes",
    ),
    (
        "ZooKeeperController.BrokerStartup.guard5",
        "no tail is lost in the model: a leader that came back may lead on in its leader epoch",
    ),
    ("ZooKeeperController.UpdateLeaderAndIsrCache.guard2", READ),
    (
        "ZooKeeperController.UpdateLeaderAndIsrCache.guard3",
        "a controller that knows a state of a topic that is gone is deposed: its successor ended it (CompleteTopicDeletion)",
    ),
    ("ZooKeeperController.UpdateLeaderAndIsrCache.guard4", UNCHANGED),
    (
        "ZooKeeperController.WriteState.guard2",
        "the controller that ends a topic forgets its state (CompleteTopicDeletion), and any other that knows it is deposed",
    ),
    ("ZooKeeperController.MayWrite.guard1", UNREAD),
    (
        "ZooKeeperController.MayWrite.guard2",
        "until another controller is elected the writer's epoch is the newest, and the write is over the version that it read",
    ),
    ("ZooKeeperController.MayDecide.guard1", UNREAD),
    (
        "ZooKeeperController.RemoveReplicaFromIsr.alternative1",
        "no promise speaks of how long a follower that is gone stays in the ISR: it is complete there, and comes back",
    ),
    (
        "ZooKeeperController.RemoveReplicaFromIsr.reset3",
        "a broker that shuts down may learn of the decision as well; one that is gone is sent nothing (LeaderAndIsrTo)",
    ),
    ("ZooKeeperController.ControlledShutdown.guard2", GONE),
    ("ZooKeeperController.ControlledShutdown.guard5", "a broker that asks again gets the same response again"),
    (
        "ZooKeeperController.AlterPartition.guard3",
        "an answered proposal is for the version before the answer's (guard5)",
    ),
    (
        "ZooKeeperController.AlterPartition.guard4",
        "a version is of one leader epoch, and the versions are equal (guard5)",
    ),
    (
        "ZooKeeperController.AlterPartition.guard5",
        "in a leader epoch only the leader's proposals change the version, and it has one at a time (LeadersKnowTheState)",
    ),
    (
        "ZooKeeperBroker.Received.guard3",
        "the request stays at the head of its queue: taken again, it is another copy of it",
    ),
    ("ZooKeeperBroker.Received.reset2", "a late copy may arrive any number of times"),
    (
        "ZooKeeperBroker.CopyLate.guard1",
        "the environment's: why only StopReplica arrives twice is in the book's README",
    ),
    ("ZooKeeperBroker.CopyLate.guard2", ENVIRONMENT),
    (
        "ZooKeeperBroker.IsOfEarlierLeaderEpoch.guard1",
        "a LeaderAndIsr of an earlier leader epoch changes no role either (IsNews)",
    ),
    ("ZooKeeperBroker.Takes.guard1", GONE),
    ("ZooKeeperBroker.RefuseRequest.guard1", GONE),
    (
        "ZooKeeperBroker.RefuseRequest.guard2",
        "who is not registered knows no epoch (MemoryFitsProcess) that a request could be earlier than",
    ),
    (
        "ZooKeeperBroker.IsNews.guard1",
        "an order to delete comes before the state of the next topic in the same queue, and the role is forgotten with it",
    ),
    ("ZooKeeperBroker.Leads.guard1", GONE),
    ("ZooKeeperBroker.ProposeIsr.guard1", RATION),
    ("ZooKeeperBroker.ExpandIsr.guard3", SAME),
    ("ZooKeeperBroker.CommitIsr.guard1", "who has a proposal leads (ProposalsAreCurrent)"),
    ("ZooKeeperBroker.Produce.guard2", LOG),
    ("ZooKeeperBroker.Produce.guard3", RATION),
    ("ZooKeeperBroker.Produce.reset1", RATION),
    ("ZooKeeperBroker.Produce.comparison1", RATION),
    ("ZooKeeperBroker.Produce.count1", RATION),
    ("ZooKeeperBroker.Produce.count2", "a record's number is its name, and the model has one record"),
    ("ZooKeeperBroker.AppendFetched.guard1", NAMES),
    ("ZooKeeperBroker.AppendFetched.guard2", LOG),
    ("ZooKeeperBroker.AppendFetched.guard3", GONE),
    ("ZooKeeperBroker.AppendFetched.guard4", SAME),
    ("ZooKeeperBroker.AppendFetched.guard5", "a leader's log is its own: nothing changes"),
    (
        "ZooKeeperBroker.AppendFetched.guard7",
        "of two leader epochs of one leader the log is the same: it has what the follower was counted for",
    ),
    ("ZooKeeperBroker.AppendFetched.guard8", UNCHANGED),
    ("ZooKeeperBroker.AdvanceHighWatermark.guard4", UNCHANGED),
    (
        "ZooKeeperBroker.AdvanceHighWatermark.reset1",
        "nothing is committed then, which breaks no promise; that promises are asked of records is another check (promises.py)",
    ),
)
"""As in `survivors`: how the mutants' names begin, and the reason."""
