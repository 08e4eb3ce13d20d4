-------------------------- MODULE ZooKeeperCluster ---------------------------
(***************************************************************************)
(* Chapter 5: all steps together, and liveness.                            *)
(***************************************************************************)
EXTENDS ZooKeeperProperties

\* The steps that need neither a fault nor a request.
Recovery ==
    \/ \E b \in Brokers :
        \/ OpenSession(b) \/ RegisterBroker(b) \/ Restart(b) \/ (b \in orphans /\ SessionExpired(b))
        \/ ElectController(b) \/ ResignController(b) \/ OnControllerFailover(b) \/ UpdateLeaderAndIsrCache(b)
        \/ StartTopicDeletion(b) \/ CompleteTopicDeletion(b)
        \/ CommitIsr(b) \/ AdvanceHighWatermark(b)
    \/ \E b, other \in Brokers :
        \/ BrokerFailure(b, other) \/ BrokerStartup(b, other)
        \/ ElectLeader(b, other) \/ RemoveReplicaFromIsr(b, other) \/ AddReplica(b, other) \/ CreateTopic(b, other)
        \/ AlterPartition(b, other) \/ ExpandIsr(b, other) \/ AppendFetched(b, other)
    \/ \E b \in Brokers : \E request \in Arriving(b) :
        \/ TakeLeaderAndIsr(b, request) \/ TakeStopReplica(b, request) \/ TakeUpdateMetadata(b, request)
        \/ RefuseRequest(b, request)

Next ==
    \/ Recovery
    \/ DeleteTopic
    \/ \E b \in Brokers :
        \/ SessionExpired(b) \/ Crash(b) \/ ShutDown(b) \/ Produce(b)
        \/ \E request \in Arriving(b) : CopyLate(b, request)
    \/ \E b, other \in Brokers :
        \/ ElectPreferredLeader(b, other) \/ ControlledShutdown(b, other) \/ RemoveReplica(b, other) \/ ShrinkIsr(b, other)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* Faults and requests of clients need not happen; the protocol's steps after them must.
Fairness ==
    /\ \A b \in Brokers :
        /\ WF_vars(OpenSession(b)) /\ WF_vars(RegisterBroker(b)) /\ WF_vars(Restart(b))
        /\ WF_vars(b \in orphans /\ SessionExpired(b))
        /\ WF_vars(ElectController(b)) /\ WF_vars(ResignController(b))
        /\ WF_vars(OnControllerFailover(b)) /\ WF_vars(UpdateLeaderAndIsrCache(b))
        /\ WF_vars(\E request \in Arriving(b) :
               TakeLeaderAndIsr(b, request) \/ TakeStopReplica(b, request) \/ RefuseRequest(b, request))
    /\ \A c, b \in Brokers :
        /\ WF_vars(BrokerFailure(c, b)) /\ WF_vars(BrokerStartup(c, b))
        /\ WF_vars(ElectLeader(c, b)) /\ WF_vars(RemoveReplicaFromIsr(c, b)) /\ WF_vars(AddReplica(c, b))
FairSpec == Spec /\ Fairness

\* In the end a controller has read everything, and brokers act by the state.
ControllerAppears == <>[](controllerNode # None /\ control[controllerNode].isLoaded)
BrokersFollowTheState ==
    <>[](/\ state.leader # None
         /\ \A b \in state.replicas : role[b].leader = state.leader /\ role[b].leaderEpoch = state.leaderEpoch)

Symmetry == Permutations(Brokers)
View == stateVars
=============================================================================
