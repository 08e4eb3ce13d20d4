----------------------- MODULE TraceZooKeeperController -----------------------
(***************************************************************************)
(* The steps of controllers in traces: sessions, elections, and decisions  *)
(* with the state that they wrote.                                         *)
(***************************************************************************)
EXTENDS ZooKeeperProperties, TraceData

CONSTANT Guarded    \* whether a step that breaks a promise is refused, as if it did not exist

VARIABLES
    written,    \* all states that were written so far
    followed,   \* topic, leader epoch and broker of each follower so far: its fetches may arrive after its end
    trace,      \* the number of the trace
    at          \* the number of the next event

traceVars == <<vars, written, followed, trace, at>>

Event == Traces[trace][at]

NoBrokers == [b \in Brokers |-> 0]
TraceInit ==
    /\ trace \in DOMAIN Traces /\ at = 1 /\ written = {} /\ followed = {}
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

\* The broker's node is created; the broker learns its broker epoch later, from the result.
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

\* A process ends. Its session ends by a step of its own, soon or late.
Ended(b) ==
    /\ b \in running
    /\ Halt(b)
    /\ orphans' = IF b \in sessions THEN orphans \cup {b} ELSE orphans
    /\ UNCHANGED <<registered, controllerNode, faults>>

\* An operator deletes /controller. The session that created it goes on.
Deposed ==
    /\ controllerNode # None
    /\ controllerNode' = None
    /\ UNCHANGED <<sessions, orphans, registered, czxid, controllerEpoch, topic, state, controllerVars, processVars,
                   replicaVars, dataVars, faults>>

\* A controller resigns. It may do so while the node is still its own, and become the controller again in the same
\* epoch.
Resigned(b) ==
    /\ b \in running
    /\ control' = [control EXCEPT ![b] = NoControl]
    /\ UnchangedButControl

\* A controller reads everything. It may do so again in the same controller epoch, when it does not know whether a
\* write succeeded.
Failover(e) ==
    LET c == e.controller
    IN  /\ c \in running
        /\ \/ control[c].epoch = e.controllerEpoch
           \/ controllerNode = c /\ controllerEpoch = e.controllerEpoch
        /\ control' = [control EXCEPT ![c] = [@ EXCEPT !.epoch = e.controllerEpoch, !.isLoaded = TRUE, !.state = state, !.live = registered]]
        /\ UnchangedButControl

\* A controller learns that a broker has come or gone. What it has read may be old, and is not judged.
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
\* All decisions begin a leader epoch, except on a leader's proposal.
BeginsLeaderEpoch(e) == e.action # "AlterPartition"

\* The state that a decision wrote: the event's, with the writer's controller epoch. An event without replicas keeps
\* or changes those of the state before it; at first they are all brokers.
StateOf(e) ==
    [topic |-> topic.id, leader |-> IF e.leader = "none" THEN None ELSE e.leader, leaderEpoch |-> e.leaderEpoch, isr |-> e.isr,
     controllerEpoch |-> control[e.controller].epoch, version |-> e.version,
     replicas |-> IF e.replicas # {} THEN e.replicas
                  ELSE IF state = None THEN Brokers
                  ELSE IF e.action = "RemoveReplica" THEN state.replicas \ {e.broker}
                  ELSE IF e.action = "AddReplica" THEN state.replicas \cup {e.broker}
                  ELSE state.replicas]

\* The conditions of every decision; a new leader is one of the candidates.
IsDecisionFor(e, candidates) ==
    LET known == control[e.controller].state
        new == StateOf(e)
    IN  /\ MayDecide(e.controller)
        /\ control[e.controller].epoch = e.controllerEpoch
        /\ new.version = known.version + 1
        /\ new.leaderEpoch = known.leaderEpoch + (IF BeginsLeaderEpoch(e) THEN 1 ELSE 0)
        /\ new.leader # known.leader => BeginsLeaderEpoch(e)
        /\ new.leader \notin {known.leader, None} => new.leader \in candidates
        /\ WriteState(e.controller, new)
        /\ UNCHANGED <<channel, late, newestEpoch, role, metadata, log, dataVars, faults>>
IsDecision(e) == IsDecisionFor(e, control[e.controller].state.isr)

\* Unclean election: the controller knows no live member of the ISR, and a replica that may lack records leads, alone
\* in the ISR.
ElectUnclean(e) ==
    /\ IsDecisionFor(e, state.replicas \ state.isr)
    /\ state.isr \cap LiveIn(control[e.controller]) = {}
    /\ state'.isr = {state'.leader} /\ state'.replicas = state.replicas
    /\ UNCHANGED pending

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

\* The controller accepts a leader's proposal. A reassignment that the new ISR completes is written with it, and may
\* move the leadership.
Alter(e) ==
    LET l == e.proposer
    IN  /\ l \in DOMAIN pending  \* a replica may be removed while no broker leads
        /\ pending[l] # None /\ pending[l].answered = 0
        /\ IsDecisionFor(e, pending[l].isr)
        /\ pending[l].leaderEpoch = state.leaderEpoch /\ pending[l].version = state.version
        /\ state'.isr = pending[l].isr \cap state'.replicas
        /\ state'.replicas \subseteq state.replicas
        /\ pending' = [pending EXCEPT ![l].answered = state'.version]

\* A reassignment adds replicas; removed ones leave the ISR. At first the state may only record that it is under way.
Reassigned(e) ==
    /\ IsDecision(e)
    /\ state'.isr = state.isr \cap state'.replicas
    /\ UNCHANGED pending
\* A reassignment removes replicas: by its own decision, or with the proposal that completes it.
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
===============================================================================
