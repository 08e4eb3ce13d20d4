--------------------------- MODULE TraceZooKeeper ----------------------------
(***************************************************************************)
(* Traces of clusters that ZooKeeper coordinates, checked against the      *)
(* specification: every event must be a step that it allows in the state   *)
(* that the events before it led to, and must lead to what its row says.   *)
(*                                                                         *)
(* A trace is one partition's, and begins with an empty ZooKeeper.  What   *)
(* is in a request is not traced, so none is kept: a request may be any    *)
(* that some controller could have sent so far, of whatever age, and a     *)
(* role one by any state that was written.  Records are left to the        *)
(* traces of `replication/`.                                               *)
(*                                                                         *)
(* Many traces are checked in one run: each is one initial state, its      *)
(* events are the only steps.  A trace that is not accepted ends early.    *)
(* The generated module TraceData defines Traces.                          *)
(***************************************************************************)
EXTENDS ZooKeeperProperties, TraceData

CONSTANT Guarded    \* is a step that breaks a promise refused as if it did not exist

VARIABLES
    written,    \* the states that there ever were
    trace,      \* which of the traces
    at          \* the next event's place

traceVars == <<vars, written, trace, at>>

Event == Traces[trace][at]

NoBrokers == [b \in Brokers |-> 0]
TraceInit ==
    /\ trace \in DOMAIN Traces /\ at = 1 /\ written = {}
    /\ sessions = {} /\ orphans = {} /\ running = {}
    /\ registered = NoBrokers /\ czxid = NoBrokers /\ brokerEpoch = NoBrokers
    /\ controllerNode = None /\ controllerEpoch = 0
    /\ topic = [id |-> 0, status |-> "gone"] /\ state = None
    /\ control = [b \in Brokers |-> NoControl]
    /\ channel = <<>> /\ late = [b \in Brokers |-> {}]
    /\ newestEpoch = NoBrokers
    /\ role = [b \in Brokers |-> NoRole] /\ pending = [b \in Brokers |-> None]
    /\ metadata = pending /\ log = pending
    /\ produced = 0 /\ committed = {}
    /\ faults = [expiry |-> Expiries, crash |-> Crashes, stop |-> Stops, shrink |-> Shrinks]
    /\ step = [action |-> "Init"]

-----------------------------------------------------------------------------
UnchangedButControl ==
    UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, channel, late, processVars, replicaVars, dataVars, faults>>

\* The node is there; the broker learns its broker epoch with the result.
Registered(e) ==
    LET b == e.broker
    IN  /\ HasSession(b) /\ registered[b] = 0
        /\ czxid' = [czxid EXCEPT ![b] = e.brokerEpoch] /\ czxid'[b] = czxid[b] + 1
        /\ registered' = [registered EXCEPT ![b] = e.brokerEpoch]
        /\ UNCHANGED <<sessions, orphans, controllerNode, controllerEpoch, topic, state, controllerVars, processVars,
                       replicaVars, dataVars, faults>>
Learned(e) ==
    /\ e.broker \in running /\ e.brokerEpoch = czxid[e.broker]
    /\ brokerEpoch' = [brokerEpoch EXCEPT ![e.broker] = e.brokerEpoch]
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, running, replicaVars, dataVars, faults>>

\* A process that ends: its session ends by a step of its own, soon or late.
Ended(b) ==
    /\ b \in running
    /\ Halt(b)
    /\ orphans' = IF b \in sessions THEN orphans \cup {b} ELSE orphans
    /\ UNCHANGED <<registered, controllerNode, faults>>

\* It may resign while the node is still its own, and be the controller again in the same epoch.
Resigned(b) ==
    /\ b \in running
    /\ control' = [control EXCEPT ![b] = NoControl]
    /\ UnchangedButControl

\* It may read everything again in the same controller epoch, when it does not know whether a write was taken.
Failover(e) ==
    LET c == e.controller
    IN  /\ c \in running
        /\ \/ control[c].epoch = e.controllerEpoch
           \/ controllerNode = c /\ controllerEpoch = e.controllerEpoch
        /\ control' = [control EXCEPT ![c] = [@ EXCEPT !.epoch = e.controllerEpoch, !.isLoaded = TRUE, !.state = state, !.live = registered]]
        /\ UnchangedButControl

\* The brokers that it takes for live are what it has read at some time, and is not judged.
Seen(e) ==
    LET c == e.controller
    IN  /\ IsActive(c)
        /\ e.action = "BrokerStartup" => 0 < e.brokerEpoch /\ e.brokerEpoch <= czxid[e.broker]
        /\ control' = [control EXCEPT ![c].live[e.broker] = IF e.action = "BrokerStartup" THEN e.brokerEpoch ELSE 0]
        /\ UnchangedButControl
Leave(e) ==
    LET c == e.controller
    IN  /\ IsActive(c)
        /\ e.broker \in running
        /\ control' = [control EXCEPT ![c].stopping = @ \cup {e.broker}]
        /\ UnchangedButControl
ReadAgain(e) ==
    LET c == e.controller
    IN  /\ IsActive(c)
        /\ control' = [control EXCEPT ![c].state = state]
        /\ UnchangedButControl

-----------------------------------------------------------------------------
\* What a decision wrote: the event's state, in the writer's controller epoch.  Where it names no replicas, they are all
\* brokers at first.
StateOf(e) ==
    [topic |-> topic.id, leader |-> IF e.leader = "none" THEN None ELSE e.leader, leaderEpoch |-> e.leaderEpoch, isr |-> e.isr,
     controllerEpoch |-> control[e.controller].epoch, version |-> e.version,
     replicas |-> IF e.replicas # {} THEN e.replicas
                  ELSE IF state = None THEN Brokers
                  ELSE IF e.action = "RemoveReplica" THEN state.replicas \ {e.broker}
                  ELSE IF e.action = "AddReplica" THEN state.replicas \cup {e.broker}
                  ELSE state.replicas]

\* What is so of every decision.
IsDecision(e) ==
    LET known == control[e.controller].state
        new == StateOf(e)
    IN  /\ MayDecide(e.controller)
        /\ control[e.controller].epoch = e.controllerEpoch
        /\ new.version = known.version + 1
        /\ new.leader # known.leader => new.leaderEpoch > known.leaderEpoch
        /\ new.leader \notin {known.leader, None} => new.leader \in known.isr
        /\ new.leaderEpoch >= known.leaderEpoch
        /\ WriteState(e.controller, new)
        /\ UNCHANGED <<channel, late, newestEpoch, role, metadata, log, dataVars, faults>>

Elect(e) ==
    /\ IsDecision(e)
    /\ state'.leader # state.leader
    /\ state'.isr \subseteq state.isr /\ state'.replicas = state.replicas
    /\ UNCHANGED pending

RemoveFromIsr(e) ==
    /\ IsDecision(e)
    /\ state'.isr \subseteq state.isr \ {e.broker} \/ state'.isr = {e.broker}
    /\ state'.replicas = state.replicas
    /\ UNCHANGED pending

\* The leader's proposal; a reassignment that the new ISR completes is written with it.
Alter(e) ==
    /\ IsDecision(e)
    /\ LET l == e.proposer
       IN  /\ pending[l] # None /\ pending[l].answered = 0
           /\ pending[l].leaderEpoch = state.leaderEpoch /\ pending[l].version = state.version
           /\ state'.isr = pending[l].isr \cap state'.replicas
           /\ state'.replicas \subseteq state.replicas
           /\ pending' = [pending EXCEPT ![l].answered = state'.version]

\* A reassignment: it adds replicas, and those that it removes leave the ISR.
Reassigned(e) ==
    /\ IsDecision(e)
    /\ state'.replicas # state.replicas
    /\ state'.isr = state.isr \cap state'.replicas
    /\ UNCHANGED pending
\* It may only be noted in the state at first.
Noted(e) == IsDecision(e) /\ state' = [state EXCEPT !.version = @ + 1, !.leaderEpoch = state'.leaderEpoch,
                                                    !.controllerEpoch = state'.controllerEpoch] /\ UNCHANGED pending
\* A reassignment that is over by what its leader had proposed.
Removed(e) == Reassigned(e) \/ Alter(e)

Create(e) ==
    LET c == e.controller
        new == [StateOf(e) EXCEPT !.topic = topic.id + 1]
    IN  /\ MayWrite(c) /\ control[c].epoch = e.controllerEpoch
        /\ topic.status = "gone"
        /\ new.version = 1 /\ new.leaderEpoch = 1
        /\ new.leader \in new.isr /\ new.isr \subseteq new.replicas
        /\ topic' = [id |-> topic.id + 1, status |-> "there"]
        /\ state' = new
        /\ control' = [control EXCEPT ![c].state = new]
        /\ UNCHANGED <<zooKeeperVars, controllerEpoch, channel, late, processVars, replicaVars, dataVars, faults>>

ToBeDeleted(e) ==
    /\ topic.status = "there"
    /\ topic' = [topic EXCEPT !.status = "to be deleted"]
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, state, controllerVars, processVars, replicaVars, dataVars, faults>>

-----------------------------------------------------------------------------
RequestOf(e) ==
    [kind |-> e.request, controllerEpoch |-> e.controllerEpoch, brokerEpoch |-> e.brokerEpoch, leaderEpoch |-> e.leaderEpoch]

\* Some controller could have sent it: in an epoch that there was, to a registration that there was.
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

\* A role by a state that was written in an epoch of which the broker has taken a request.
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

\* The leader has the answer to its proposal, or learns what was written of its leader epoch by a request.
Commit(e) ==
    \E given \in written :
        /\ Leads(e.broker)
        /\ given.topic = role[e.broker].topic /\ given.leaderEpoch = role[e.broker].leaderEpoch
        /\ given.version = e.version /\ given.version >= role[e.broker].version
        /\ role' = [role EXCEPT ![e.broker] = RoleBy(e.broker, given)]
        /\ pending' = [pending EXCEPT ![e.broker] = None]
        /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, metadata, log,
                       dataVars, faults>>

RollBack(e) ==
    /\ Leads(e.broker) /\ pending[e.broker] # None /\ pending[e.broker].answered = 0
    /\ pending' = [pending EXCEPT ![e.broker] = None]
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, role, metadata, log,
                   dataVars, faults>>

\* A replica of a process that begins or ends.
Closed(b) ==
    /\ b \in running
    /\ role' = [role EXCEPT ![b] = NoRole]
    /\ pending' = [pending EXCEPT ![b] = None]
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, metadata, log,
                   dataVars, faults>>

\* The log is deleted: with its topic, or because some state had no such replica, and never in the ISR.
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
      [] e.action = "ResignController"     -> Resigned(e.controller)
      [] e.action = "OnControllerFailover" -> Failover(e)
      [] e.action \in {"BrokerFailure", "BrokerStartup"} -> Seen(e)
      [] e.action = "ControlledShutdown"   -> Leave(e)
      [] e.action = "UpdateLeaderAndIsrCache" -> ReadAgain(e)
      [] e.action = "CreateTopic"          -> Create(e)
      [] e.action = "DeleteTopic"          -> ToBeDeleted(e)
      [] e.action \in {"ElectLeader", "ElectPreferredLeader"} -> Elect(e)
      [] e.action = "RemoveReplicaFromIsr" -> RemoveFromIsr(e)
      [] e.action = "AlterPartition"       -> Alter(e)
      [] e.action = "AddReplica"           -> Reassigned(e)
      [] e.action = "RemoveReplica"        -> Removed(e)
      [] e.action = "Reassign"             -> Reassigned(e) \/ Noted(e)
      [] e.action = "CloseReplica"         -> Closed(e.broker)
      [] e.action \in {"TakeLeaderAndIsr", "TakeStopReplica", "TakeUpdateMetadata"} -> Taken(e)
      [] e.action = "RefuseRequest"        -> Refused(e)
      [] e.action \in {"BecomeLeader", "BecomeFollower"} -> Act(e)
      [] e.action = "ExpandIsr"            -> ExpandIsr(e.broker, e.follower)
      [] e.action = "ShrinkIsr"            -> ShrinkIsr(e.broker, e.follower)
      [] e.action = "CommitIsr"            -> Commit(e)
      [] e.action = "RollBackIsr"          -> RollBack(e)
      [] e.action = "GiveUpReplica"        -> GiveUp(e)

\* What every state on the way must keep.
KeepsPromises ==
    OneControllerPerEpoch /\ EphemeralNodesHaveSessions /\ OneLeaderPerEpoch /\ MaximalIsrIsSuperset /\ LeaderIsInIsr

TraceNext ==
    /\ at <= Len(Traces[trace])
    /\ StepOf(Event)
    /\ step' = step
    /\ written' = IF state' = None THEN written ELSE written \cup {state'}
    /\ Guarded => KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED trace

\* Said of each trace that is accepted to its end.
Accepted == at > Len(Traces[trace]) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
