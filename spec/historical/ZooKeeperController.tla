------------------------- MODULE ZooKeeperController -------------------------
(***************************************************************************)
(* Chapter 2: the controller before KRaft. The broker that creates the     *)
(* ephemeral node /controller is the controller. The others watch the      *)
(* node, and one of them becomes the controller when it is deleted. The    *)
(* controller epoch is raised in the same multi.                           *)
(*                                                                         *)
(* A controller that was paused does not know that it was deposed: it      *)
(* continues with what it knows, and its requests may still be on their    *)
(* way. Three rules prevent a split brain. ZooKeeper accepts a decision    *)
(* only with the newest controller epoch, and only over the version of the *)
(* state that the controller has read. Brokers refuse requests of an older *)
(* controller epoch.                                                       *)
(***************************************************************************)
EXTENDS ZooKeeper

\* Whether a broker acts as the controller; it may have been deposed.
IsActive(c) == c \in running /\ control[c].isLoaded
LiveIn(known) == {b \in Brokers : known.live[b] # 0}
\* The brokers that a controller may elect: live ones that do not shut down.
Electable(known) == LiveIn(known) \ known.stopping

\* /controller is gone: a registered broker creates it, and raises the controller epoch in the same multi.
ElectController(b) ==
    /\ HasSession(b)
    /\ registered[b] # 0 /\ registered[b] = brokerEpoch[b]
    /\ controllerNode = None
    /\ controllerNode' = b
    /\ controllerEpoch' = controllerEpoch + 1
    /\ control' = [control EXCEPT ![b].epoch = controllerEpoch + 1]
    /\ channel' = Append(channel, NoRequests)
    /\ Step("ElectController", [from |-> b, to |-> "zookeeper"])
    /\ UNCHANGED <<sessions, orphans, registered, czxid, topic, state, late, processVars, replicaVars, dataVars, faults>>

\* A controller learns that /controller is gone or another broker's: by a watch, in a new session, or by a refused
\* write.
ResignController(b) ==
    /\ b \in running
    /\ control[b].epoch # 0
    /\ controllerNode # b
    /\ control' = [control EXCEPT ![b] = NoControl]
    /\ Step("ResignController", [from |-> b])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, channel, late, processVars, replicaVars, dataVars, faults>>

-----------------------------------------------------------------------------
\* A request has the controller epoch, and the broker epoch of the broker that it is sent to (KIP-380).
Request(known, b, kind, decided) ==
    [kind |-> kind, controllerEpoch |-> known.epoch, brokerEpoch |-> known.live[b], topic |-> decided.topic,
     leader |-> decided.leader, leaderEpoch |-> decided.leaderEpoch, isr |-> decided.isr, version |-> decided.version,
     deletes |-> FALSE]

LeaderAndIsrTo(known, b, decided) ==
    IF known.live[b] # 0 /\ b \in decided.replicas THEN <<Request(known, b, "LeaderAndIsr", decided)>> ELSE <<>>

UpdateMetadataTo(known, b, decided) ==
    IF Metadata /\ known.live[b] # 0 THEN <<Request(known, b, "UpdateMetadata", decided)>> ELSE <<>>

\* The leader epoch of a StopReplica that deletes the topic, for a deletion begins no leader epoch
\* (LeaderAndIsr.EpochDuringDelete).
DeletedTopic == -2
StopReplicaTo(known, b, leaderEpoch, deletes) ==
    IF known.live[b] = 0 THEN <<>>
    ELSE <<[Request(known, b, "StopReplica", NoRole) EXCEPT !.leaderEpoch = leaderEpoch, !.deletes = deletes]>>

Send(epoch, requests) == channel' = [channel EXCEPT ![epoch] = [b \in Brokers |-> @[b] \o requests[b]]]
StateTo(known, decided) ==
    [b \in Brokers |-> LeaderAndIsrTo(known, b, decided) \o UpdateMetadataTo(known, b, decided)]

-----------------------------------------------------------------------------
\* The new controller reads registrations and state, and sends the state to all live brokers.
OnControllerFailover(c) ==
    /\ HasSession(c)
    /\ control[c].epoch # 0 /\ ~control[c].isLoaded
    /\ LET known == [control[c] EXCEPT !.isLoaded = TRUE, !.live = registered, !.state = state]
       IN  /\ control' = [control EXCEPT ![c] = known]
           /\ IF state = None THEN UNCHANGED channel ELSE Send(known.epoch, StateTo(known, state))
    /\ Step("OnControllerFailover", [from |-> "zookeeper", to |-> c])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, late, processVars, replicaVars, dataVars, faults>>

\* The controller handles a broker that is gone, or that has a newer broker epoch because it was back before the
\* controller looked. It drops the broker's queue, but for the request on its way. The watch of /brokers/ids ends with
\* the session in which the controller was elected.
BrokerFailure(c, b) ==
    /\ IsActive(c) /\ controllerNode = c
    /\ control[c].live[b] # 0 /\ registered[b] # control[c].live[b]
    /\ control' = [control EXCEPT ![c].live[b] = 0, ![c].stopping = @ \ {b}]
    /\ channel' = [channel EXCEPT ![control[c].epoch][b] = IF @ = <<>> THEN @ ELSE <<Head(@)>>]
    /\ Step("BrokerFailure", [from |-> "zookeeper", to |-> c, broker |-> b])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, late, processVars, replicaVars, dataVars, faults>>

\* The controller handles a broker that has come, and sends it the state. If that broker was the leader, its failure
\* is handled first, so that it does not lead in its old leader epoch.
BrokerStartup(c, b) ==
    LET known == [control[c] EXCEPT !.live[b] = registered[b]]
        decided == control[c].state
        requests == IF decided = None THEN <<>>
                    ELSE IF control[c].deletes THEN StopReplicaTo(known, b, DeletedTopic, TRUE)
                    ELSE LeaderAndIsrTo(known, b, decided) \o UpdateMetadataTo(known, b, decided)
    IN  /\ IsActive(c) /\ controllerNode = c
        /\ control[c].live[b] = 0 /\ registered[b] # 0
        /\ decided # None => decided.leader # b \/ control[c].deletes
        /\ control' = [control EXCEPT ![c] = known]
        /\ Send(known.epoch, [NoRequests EXCEPT ![b] = requests])
        /\ Step("BrokerStartup", [from |-> "zookeeper", to |-> c, broker |-> b])
        /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, late, processVars, replicaVars, dataVars, faults>>

\* The controller reads the partition's state again: after a notification (/isr_change_notification), or before it
\* decides.
UpdateLeaderAndIsrCache(c) ==
    /\ IsActive(c) /\ HasSession(c)
    /\ state # None /\ control[c].state # state
    /\ control' = [control EXCEPT ![c].state = state]
    /\ Step("UpdateLeaderAndIsrCache", [from |-> "zookeeper", to |-> c])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, channel, late, processVars, replicaVars, dataVars, faults>>

-----------------------------------------------------------------------------
\* Whether a write of the controller succeeds. Its multi fails if /controller_epoch has another version than the
\* controller's own (KAFKA-6082).
MayWrite(c) ==
    /\ IsActive(c) /\ HasSession(c)
    /\ control[c].epoch = controllerEpoch \/ On("WriteWithoutControllerEpoch")

\* The state that a decision writes: with the next version, and with the controller's own epoch.
Written(c, decided) == [decided EXCEPT !.version = @ + 1, !.controllerEpoch = control[c].epoch]

\* The conditional write: it succeeds only over the version that the controller has read.
WriteState(c, written) ==
    /\ MayWrite(c)
    /\ state # None
    /\ state.version = control[c].state.version
    /\ state' = written
    /\ control' = [control EXCEPT ![c].state = written]
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, processVars>>

\* Whether the controller may decide: it has read the state, and deletes no topic.
MayDecide(c) == IsActive(c) /\ control[c].state # None /\ ~control[c].deletes

\* The state that a decision writes, if it begins a leader epoch.
Decided(c, decided) == Written(c, [decided EXCEPT !.leaderEpoch = @ + 1])

\* The controller writes the state, then sends requests to the brokers.
Decide(c, written, requests) ==
    /\ WriteState(c, written)
    /\ Send(control[c].epoch, requests)
    /\ UNCHANGED <<late, replicaVars, dataVars>>

\* The leader is gone or shuts down: another member of the ISR becomes the leader.
ElectLeader(c, l) ==
    /\ MayDecide(c)
    /\ LET known == control[c]
           written == Decided(c, [known.state EXCEPT !.leader = l, !.isr = @ \cap Electable(known)])
       IN  /\ known.state.leader \notin Electable(known)
           /\ l \in known.state.isr \cap Electable(known)
           /\ Decide(c, written, StateTo(known, written))
    /\ Step("ElectLeader", [from |-> c, to |-> l])
    /\ UNCHANGED faults

\* Leadership moves to another live member of the ISR without a failure.
ElectPreferredLeader(c, l) ==
    /\ MayDecide(c)
    /\ Spend("election")
    /\ LET known == control[c]
           written == Decided(c, [known.state EXCEPT !.leader = l])
       IN  /\ l \in (known.state.isr \cap Electable(known)) \ {known.state.leader}
           /\ Decide(c, written, StateTo(known, written))
    /\ Step("ElectPreferredLeader", [from |-> c, to |-> l])

\* A replica is offline or shuts down: it leaves the ISR, unless it is the last member. A leader that is offline is
\* removed as the leader, too; one that shuts down leads until another is elected.
RemoveReplicaFromIsr(c, b) ==
    /\ MayDecide(c)
    /\ LET known == control[c]
           isr == known.state.isr
           leader == known.state.leader
           written == Decided(c, [known.state EXCEPT
               !.leader = IF leader = b THEN None ELSE leader, !.isr = IF isr = {b} THEN isr ELSE isr \ {b}])
       IN  /\ b \in isr \ Electable(known)
           /\ isr # {b} \/ leader = b
           /\ leader = b => b \notin LiveIn(known)
           /\ Decide(c, written, [StateTo(known, written) EXCEPT ![b] = <<>>])
    /\ Step("RemoveReplicaFromIsr", [from |-> c, broker |-> b])
    /\ UNCHANGED faults

\* A broker requests a controlled shutdown. From now on it is not elected, and it stops the replica if that follows.
ControlledShutdown(c, b) ==
    /\ MayDecide(c)
    /\ Spend("stop")
    /\ b \in running /\ brokerEpoch[b] # 0
    /\ control[c].live[b] = brokerEpoch[b]
    /\ b \notin control[c].stopping
    /\ control' = [control EXCEPT ![c].stopping = @ \cup {b}]
    /\ Send(control[c].epoch, [NoRequests EXCEPT ![b] =
           IF control[c].state.leader = b THEN <<>>
           ELSE StopReplicaTo(control[c], b, control[c].state.leaderEpoch, FALSE)])
    /\ Step("ControlledShutdown", [from |-> b, to |-> c])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, late, processVars, replicaVars, dataVars>>

\* A reassignment removes a broker's replica; the broker is to delete it.
RemoveReplica(c, b) ==
    /\ MayDecide(c)
    /\ Spend("move")
    /\ LET known == control[c]
           written == Decided(c, [known.state EXCEPT !.isr = @ \ {b}, !.replicas = @ \ {b}])
       IN  /\ b \in known.state.replicas \ {known.state.leader}
           /\ known.state.isr # {b}
           /\ Decide(c, written,
                  [StateTo(known, written) EXCEPT ![b] = StopReplicaTo(known, b, written.leaderEpoch, TRUE)])
    /\ Step("RemoveReplica", [from |-> c, to |-> b])

\* A reassignment adds the replica again; it has to catch up before it joins the ISR.
AddReplica(c, b) ==
    /\ MayDecide(c)
    /\ LET known == control[c]
           written == Decided(c, [known.state EXCEPT !.replicas = @ \cup {b}])
       IN  /\ b \notin known.state.replicas
           /\ Decide(c, written, StateTo(known, written))
    /\ Step("AddReplica", [from |-> c, to |-> b])
    /\ UNCHANGED faults

\* The controller accepts a leader's proposal, if it has the present leader epoch and version (KIP-497).
AlterPartition(c, l) ==
    /\ MayDecide(c)
    /\ pending[l] # None /\ pending[l].answered = 0
    /\ pending[l].leaderEpoch = control[c].state.leaderEpoch
    /\ pending[l].version = control[c].state.version
    /\ LET written == Written(c, [control[c].state EXCEPT !.isr = pending[l].isr])
       IN  /\ WriteState(c, written)
           /\ pending' = [pending EXCEPT ![l].answered = written.version]
    /\ Step("AlterPartition", [from |-> l, to |-> c])
    /\ UNCHANGED <<channel, late, newestEpoch, role, metadata, log, dataVars, faults>>

-----------------------------------------------------------------------------
\* An administrator requests the deletion (/admin/delete_topics). From now on no record is promised.
DeleteTopic ==
    /\ Spend("deletion")
    /\ topic.status = "there"
    /\ topic' = [topic EXCEPT !.status = "to be deleted"]
    /\ committed' = {}
    /\ Step("DeleteTopic", [from |-> "client", to |-> "zookeeper"])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, state, controllerVars, processVars, replicaVars, produced>>

\* The controller has all live brokers delete their replicas.
StartTopicDeletion(c) ==
    /\ MayDecide(c) /\ HasSession(c)
    /\ topic.status = "to be deleted"
    /\ control' = [control EXCEPT ![c].deletes = TRUE]
    /\ Send(control[c].epoch, [b \in Brokers |-> StopReplicaTo(control[c], b, DeletedTopic, TRUE)])
    /\ Step("StartTopicDeletion", [from |-> c])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, late, processVars, replicaVars, dataVars, faults>>

\* All replicas have answered: the controller deletes the topic's nodes.
CompleteTopicDeletion(c) ==
    /\ MayWrite(c)
    /\ control[c].deletes
    /\ control[c].state.replicas \subseteq control[c].deleted
    /\ topic' = [topic EXCEPT !.status = "gone"]
    /\ state' = None
    /\ control' = [control EXCEPT ![c].deletes = FALSE, ![c].deleted = {}, ![c].state = None]
    /\ Step("CompleteTopicDeletion", [from |-> c, to |-> "zookeeper"])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, channel, late, processVars, replicaVars, dataVars, faults>>

\* The topic is created again, with another id; the ISR is all brokers that may be elected.
CreateTopic(c, l) ==
    /\ MayWrite(c)
    /\ topic.status = "gone"
    /\ l \in Electable(control[c])
    /\ LET written == FirstState(topic.id + 1, l, Electable(control[c]), control[c].epoch)
       IN  /\ state' = written
           /\ control' = [control EXCEPT ![c].state = written]
           /\ Send(control[c].epoch, StateTo(control[c], written))
    /\ topic' = [id |-> topic.id + 1, status |-> "there"]
    /\ Step("CreateTopic", [from |-> c, to |-> l])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, late, processVars, replicaVars, dataVars, faults>>
=============================================================================
