--------------------------- MODULE TraceZooKeeper ----------------------------
(***************************************************************************)
(* Traces of clusters that ZooKeeper coordinates, checked against the      *)
(* specification. Every event must be a step that it allows in the state   *)
(* after the events before it, and must lead to the state that the event   *)
(* reports.                                                                *)
(*                                                                         *)
(* A trace is one partition's, and begins with an empty ZooKeeper. The     *)
(* content of requests is not traced, and so not kept: a request may be    *)
(* any that some controller could have sent so far, of any age, and a role *)
(* may be by any state that was written so far. Records are left to the    *)
(* traces of `replication/`.                                               *)
(*                                                                         *)
(* One run checks many traces: each is one initial state, and its events   *)
(* are the only steps. A trace that is not accepted ends early. TraceData, *)
(* a generated module, defines Traces.                                     *)
(***************************************************************************)
EXTENDS TraceZooKeeperController

-----------------------------------------------------------------------------
RequestOf(e) ==
    [kind |-> e.request, controllerEpoch |-> e.controllerEpoch, brokerEpoch |-> e.brokerEpoch, leaderEpoch |-> e.leaderEpoch]

\* A broker accepts a request that some controller could have sent: in a controller epoch and to a registration that
\* have existed.
Taken(e) ==
    /\ e.controllerEpoch <= controllerEpoch /\ e.brokerEpoch <= czxid[e.broker]
    /\ Takes(e.broker, RequestOf(e))
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, role, pending, metadata, log,
                   dataVars, faults>>

Refused(e) ==
    /\ e.broker \in running
    /\ CASE e.error = "STALE_CONTROLLER_EPOCH" -> IsOfDeposedController(e.broker, RequestOf(e))
         [] e.error = "STALE_BROKER_EPOCH" -> IsForEarlierRegistration(e.broker, RequestOf(e))
         [] e.error = "FENCED_LEADER_EPOCH" -> IsOfEarlierLeaderEpoch(e.broker, RequestOf(e))
         [] OTHER -> FALSE
    /\ UNCHANGED stateVars

\* A broker leads or follows by a state that was written in a controller epoch which it has learned by a request.
Act(e) ==
    \E given \in written :
        /\ e.broker \in running
        /\ given.leaderEpoch = e.leaderEpoch /\ given.version = e.version
        /\ given.controllerEpoch <= newestEpoch[e.broker]
        /\ (given.leader = e.broker) = (e.action = "BecomeLeader")
        /\ \/ given.topic > role[e.broker].topic
           \/ given.topic = role[e.broker].topic /\ given.leaderEpoch > role[e.broker].leaderEpoch
        /\ role' = [role EXCEPT ![e.broker] = RoleBy(e.broker, given)]
        /\ pending' = [pending EXCEPT ![e.broker] = None]
        /\ log' = [log EXCEPT ![e.broker] = [topic |-> given.topic, records |-> {}]]
        /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, metadata,
                       dataVars, faults>>

\* The leader has the response to its proposal, or learns from a request which ISR of its leader epoch was written.
Commit(e) ==
    \E given \in written :
        /\ Leads(e.broker)
        /\ given.topic = role[e.broker].topic /\ given.leaderEpoch = role[e.broker].leaderEpoch
        /\ given.version = e.version /\ given.version >= role[e.broker].version
        /\ role' = [role EXCEPT ![e.broker] = RoleBy(e.broker, given)]
        /\ pending' = [pending EXCEPT ![e.broker] = None]
        /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, metadata, log,
                       dataVars, faults>>

\* A fetch of a follower in this leader epoch shows that it has caught up. It may have ended meanwhile; then the
\* controller refuses.
Expand(e) ==
    LET l == e.broker
    IN  /\ Leads(l) /\ e.follower \notin role[l].isr
        /\ <<role[l].topic, role[l].leaderEpoch, e.follower>> \in followed
        /\ ChangeIsr(l, role[l].isr \cup {e.follower})
        /\ UNCHANGED faults

\* The leader drops a proposal. After each step MaximalIsrIsSuperset checks that the controller has not written it.
RollBack(e) ==
    /\ Leads(e.broker) /\ pending[e.broker] # None
    /\ pending' = [pending EXCEPT ![e.broker] = None]
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, role, metadata, log,
                   dataVars, faults>>

\* A process that starts or ends closes its replica.
Closed(b) ==
    /\ b \in running
    /\ role' = [role EXCEPT ![b] = NoRole]
    /\ pending' = [pending EXCEPT ![b] = None]
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, metadata, log,
                   dataVars, faults>>

\* The log is deleted: with its topic, or because some state had no such replica; never that of a member of the ISR.
GiveUp(e) ==
    /\ e.broker \in running
    /\ topic.status # "there" \/ \E given \in written : given.topic = topic.id /\ e.broker \notin given.replicas
    /\ topic.status = "there" => e.broker \notin state.isr
    /\ role' = [role EXCEPT ![e.broker] = NoRole]
    /\ pending' = [pending EXCEPT ![e.broker] = None]
    /\ log' = [log EXCEPT ![e.broker] = None]
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, metadata, dataVars,
                   faults>>

-----------------------------------------------------------------------------
StepOf(e) ==
    CASE e.action = "SessionExpired"       -> SessionExpired(e.broker)
      [] e.action = "OpenSession"          -> OpenSession(e.broker)
      [] e.action = "RegisterBroker"       -> Registered(e)
      [] e.action = "LearnBrokerEpoch"     -> Learned(e)
      [] e.action \in {"Crash", "ShutDown"} -> Ended(e.broker)
      [] e.action = "Restart"              -> Restart(e.broker)
      [] e.action = "ElectController"      -> ElectController(e.controller) /\ controllerEpoch' = e.controllerEpoch
      [] e.action = "DeposeController"     -> Deposed
      [] e.action = "ResignController"     -> Resigned(e.controller)
      [] e.action = "OnControllerFailover" -> Failover(e)
      [] e.action \in {"BrokerFailure", "BrokerStartup"} -> Seen(e)
      [] e.action = "ControlledShutdown"   -> Leave(e)
      [] e.action = "UpdateLeaderAndIsrCache" -> ReadAgain(e)
      [] e.action = "CreateTopic"          -> Create(e)
      [] e.action = "DeleteTopic"          -> ToBeDeleted(e)
      [] e.action \in {"ElectLeader", "ElectPreferredLeader"} -> Elect(e)
      [] e.action = "ElectUncleanLeader"   -> ElectUnclean(e)
      [] e.action = "RemoveReplicaFromIsr" -> RemoveFromIsr(e)
      [] e.action = "AlterPartition"       -> Alter(e)
      [] e.action \in {"AddReplica", "Reassign"} -> Reassigned(e)
      [] e.action = "RemoveReplica"        -> Removed(e)
      [] e.action = "CloseReplica"         -> Closed(e.broker)
      [] e.action \in {"TakeLeaderAndIsr", "TakeStopReplica", "TakeUpdateMetadata"} -> Taken(e)
      [] e.action = "RefuseRequest"        -> Refused(e)
      [] e.action \in {"BecomeLeader", "BecomeFollower"} -> Act(e)
      [] e.action = "ExpandIsr"            -> Expand(e)
      [] e.action = "ShrinkIsr"            -> ShrinkIsr(e.broker, e.follower)
      [] e.action = "CommitIsr"            -> Commit(e)
      [] e.action = "RollBackIsr"          -> RollBack(e)
      [] e.action = "GiveUpReplica"        -> GiveUp(e)

\* The promises that every state must keep.
KeepsPromises ==
    OneControllerPerEpoch /\ EphemeralNodesHaveSessions /\ OneLeaderPerEpoch /\ MaximalIsrIsSuperset /\ LeaderIsInIsr

TraceNext ==
    /\ at <= Len(Traces[trace])
    /\ StepOf(Event)
    /\ step' = step
    /\ written' = IF state' = None THEN written ELSE written \cup {state'}
    /\ followed' = IF Event.action # "BecomeFollower" THEN followed
                   ELSE followed \cup {<<role'[Event.broker].topic, role'[Event.broker].leaderEpoch, Event.broker>>}
    /\ Guarded => KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED trace

\* Prints each trace that is accepted to its end.
Accepted == at > Len(Traces[trace]) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
