--------------------------- MODULE MCZooKeeperRules --------------------------
(***************************************************************************)
(* What single rules promise: a rule that another one masks, or whose      *)
(* fault takes long to show, breaks here.                                  *)
(***************************************************************************)
EXTENDS ZooKeeperController

\* The broker with the node, which has a session, acts as the controller, in the newest epoch and by the newest record.
OwnerControls ==
    /\ owner \in registered \cup {None}
    /\ \A b \in registered : control[b].epoch > 0 <=> owner = b
    /\ owner # None => control[owner].epoch = controllerEpoch /\ control[owner].record = record

FollowersHaveTheLog == \A b \in Brokers : role[b].leader # None => hasLog[b]

RecordsHaveEpochs ==
    [][record'.leader # record.leader \/ record'.replicas # record.replicas => record'.leaderEpoch > record.leaderEpoch]_vars

\* An election leaves none in the ISR that the controller takes for dead.
ElectedAmongTheLive ==
    [][ record'.leader # record.leader =>
        \E c \in Brokers : control[c].epoch = controllerEpoch /\ record'.isr \subseteq control[c].live ]_vars

StoppedAreDeleted ==
    [][ \A c, b \in Brokers :
        /\ Arrives(c, b, "StopReplica") /\ channel'[c][b] = Tail(channel[c][b])
        /\ Head(channel[c][b]).controllerEpoch >= newestEpoch[b]
        => ~hasLog'[b] /\ role'[b].leader = None ]_vars

\* What is done without faults and moves.
Work ==
    \/ \E b \in Brokers : RenewSession(b) \/ ElectController(b) \/ SeeBrokers(b)
    \/ \E c, b \in Brokers :
        \/ ElectPartitionLeader(c, b) \/ AddReplica(c, b) \/ JoinIsr(c, b)
        \/ TakeLeaderAndIsr(c, b) \/ TakeStopReplica(c, b) \/ RefuseRequest(c, b)

\* When nothing is left to do, all brokers are in sync and act by the record.
RestFollowsTheRecord ==
    \/ ENABLED <<Work>>_stateVars
    \/ /\ registered = Brokers /\ owner # None /\ control[owner].live = Brokers
       /\ record.isr = Brokers /\ record.replicas = Brokers
       /\ \A c, b \in Brokers : channel[c][b] = <<>>
       /\ \A b \in Brokers : hasLog[b] /\ role[b] = [leader |-> record.leader, leaderEpoch |-> record.leaderEpoch]
=============================================================================
