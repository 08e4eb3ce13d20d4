----------------------------- MODULE ZooKeeper ------------------------------
(***************************************************************************)
(* Chapter 1: the variables, the initial state, and sessions in ZooKeeper. *)
(*                                                                         *)
(* Brokers, the controller and the partitions are nodes of a tree that     *)
(* ZooKeeper keeps. An ephemeral node is deleted with the session of the   *)
(* client that created it. ZooKeeper alone decides when a session has      *)
(* expired. The client learns of that later: when it has connected again,  *)
(* in a new session.                                                       *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Brokers,
    None,
    AlterPartitions,    \* TRUE: leaders ask the controller for another ISR (2.7 and later); FALSE: they write it themselves
    Metadata,           \* whether UpdateMetadata is sent, too
    Records,            \* how many records are produced
    Expiries,           \* so many sessions of running brokers expire
    Crashes,            \* so many brokers end uncleanly,
    Stops,              \* and so many cleanly
    Moves,              \* so many replicas are removed by a reassignment
    Elections,          \* so many preferred leaders are elected
    Deletions,          \* the topic is deleted, and created again, so many times
    Shrinks,            \* so many slow followers are removed from the ISR
    Copies,             \* so many requests are sent again, and their first copy arrives late
    RecordSteps,
    Bugs

KnownBugs == {
    "WriteWithoutControllerEpoch",   \* the state of a partition is written without a check of the controller epoch
    "WriteIsrWithoutVersion",        \* a leader writes the ISR over any version of the partition's state
    "TakeFromDeposedController",     \* brokers do not compare controller epochs
    "IgnoreBrokerEpoch",             \* brokers do not compare broker epochs
    "StopReplicaWithoutLeaderEpoch", \* StopReplica carries no leader epoch
    "ExpiredSessionWrites"}          \* ZooKeeper accepts writes of an expired session
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    \* ZooKeeper's.
    sessions,           \* brokers whose process has a live session
    orphans,            \* brokers whose process has ended, and whose session has not expired yet
    registered,         \* /brokers/ids, ephemeral: the broker epoch (zxid of the node's creation), 0 without a node
    czxid,              \* the newest broker epoch of each broker
    controllerNode,     \* /controller, ephemeral: the broker that created it
    controllerEpoch,    \* /controller_epoch
    topic,              \* the topic's id, and whether it is there, to be deleted (/admin/delete_topics), or gone
    state,              \* the partition's state: leader, leader epoch, ISR, controller epoch, version; and its replicas
    \* The controllers'.
    control,            \* what each broker knows as the controller; epoch 0: it is not the controller
    channel,            \* by controller epoch: the requests to each broker, in order
    late,               \* to each broker: first copies of requests that were sent again
    \* The brokers'.
    running,            \* brokers whose process runs
    brokerEpoch,        \* the broker epoch that the process has, 0 before it is registered
    newestEpoch,        \* the newest controller epoch that it has learned of
    role,               \* leader, leader epoch, topic; for a leader also its ISR and the ISR's version
    pending,            \* the ISR that a leader has asked the controller for
    metadata,           \* the leader that it returns to clients
    log,                \* the replica's records and their topic
    \* The environment's.
    produced,
    committed,          \* the records that some leader has committed
    faults,
    step

zooKeeperVars == <<sessions, orphans, registered, czxid, controllerNode>>
controllerVars == <<control, channel, late>>
processVars == <<running, brokerEpoch>>
replicaVars == <<newestEpoch, role, pending, metadata, log>>
dataVars == <<produced, committed>>
stateVars == <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, replicaVars, dataVars, faults>>
vars == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step
Spend(fault) == faults[fault] > 0 /\ faults' = [faults EXCEPT ![fault] = @ - 1]

NoControl == [epoch |-> 0, isLoaded |-> FALSE, live |-> [b \in Brokers |-> 0], stopping |-> {}, state |-> None,
              deletes |-> FALSE, deleted |-> {}]
NoRole == [topic |-> 0, leader |-> None, leaderEpoch |-> 0, isr |-> {}, version |-> 0]
NoRequests == [b \in Brokers |-> <<>>]
FirstState(id, leader, isr, epoch) ==
    [topic |-> id, leader |-> leader, leaderEpoch |-> 1, isr |-> isr, controllerEpoch |-> epoch, version |-> 1,
     replicas |-> Brokers]

\* A broker's role by a partition's state: only a leader keeps the ISR and its version.
RoleBy(b, given) ==
    [topic |-> given.topic, leader |-> given.leader, leaderEpoch |-> given.leaderEpoch,
     isr |-> IF given.leader = b THEN given.isr ELSE {}, version |-> IF given.leader = b THEN given.version ELSE 0]

Init ==
    \E first \in Brokers, leader \in Brokers :
        /\ sessions = Brokers /\ orphans = {} /\ running = Brokers
        /\ registered = [b \in Brokers |-> 1] /\ czxid = registered /\ brokerEpoch = registered
        /\ controllerNode = first
        /\ controllerEpoch = 1
        /\ topic = [id |-> 1, status |-> "there"]
        /\ state = FirstState(1, leader, Brokers, 1)
        /\ control = [b \in Brokers |->
                         IF b # first THEN NoControl
                         ELSE [NoControl EXCEPT !.epoch = 1, !.isLoaded = TRUE, !.live = registered, !.state = state]]
        /\ channel = <<NoRequests>>
        /\ late = [b \in Brokers |-> {}]
        /\ newestEpoch = [b \in Brokers |-> 1]
        /\ role = [b \in Brokers |-> RoleBy(b, state)]
        /\ pending = [b \in Brokers |-> None]
        /\ metadata = [b \in Brokers |-> IF Metadata THEN [leader |-> leader, leaderEpoch |-> 1] ELSE None]
        /\ log = [b \in Brokers |-> [topic |-> 1, records |-> {}]]
        /\ produced = 0 /\ committed = {}
        /\ faults = [expiry |-> Expiries, crash |-> Crashes, stop |-> Stops, move |-> Moves, election |-> Elections,
                     deletion |-> Deletions, shrink |-> Shrinks, copy |-> Copies]
        /\ step = [action |-> "Init"]

-----------------------------------------------------------------------------
\* Whether the broker has a live session: ZooKeeper refuses writes of an expired one.
HasSession(b) == b \in running /\ (b \in sessions \/ On("ExpiredSessionWrites"))

\* The session's ephemeral nodes are deleted; clients that watch them learn of it.
Vanish(b) ==
    /\ registered' = [registered EXCEPT ![b] = 0]
    /\ controllerNode' = IF controllerNode = b THEN None ELSE controllerNode

\* ZooKeeper has received nothing for the session timeout: the process has ended, is paused, or is cut off.
SessionExpired(b) ==
    /\ IF b \in orphans
       THEN orphans' = orphans \ {b} /\ UNCHANGED <<sessions, faults>>
       ELSE b \in sessions /\ sessions' = sessions \ {b} /\ Spend("expiry") /\ UNCHANGED orphans
    /\ Vanish(b)
    /\ Step("SessionExpired", [from |-> "zookeeper", to |-> b])
    /\ UNCHANGED <<czxid, controllerEpoch, topic, state, controllerVars, processVars, replicaVars, dataVars>>

\* The client connects again and gets a new session. It may send in it what it prepared in the expired one.
OpenSession(b) ==
    /\ b \in running \ sessions
    /\ sessions' = sessions \cup {b}
    /\ Step("OpenSession", [from |-> b, to |-> "zookeeper"])
    /\ UNCHANGED <<orphans, registered, czxid, controllerNode, controllerEpoch, topic, state, controllerVars, processVars,
                   replicaVars, dataVars, faults>>

\* The broker creates its node below /brokers/ids; its broker epoch is the zxid. A broker that was the controller has
\* resigned before. A node of an earlier process must be gone first.
RegisterBroker(b) ==
    /\ HasSession(b)
    /\ registered[b] = 0
    /\ control[b].epoch = 0
    /\ czxid' = [czxid EXCEPT ![b] = @ + 1]
    /\ registered' = [registered EXCEPT ![b] = czxid[b] + 1]
    /\ brokerEpoch' = [brokerEpoch EXCEPT ![b] = czxid[b] + 1]
    /\ Step("RegisterBroker", [from |-> b, to |-> "zookeeper"])
    /\ UNCHANGED <<sessions, orphans, controllerNode, controllerEpoch, topic, state, controllerVars, running, replicaVars,
                   dataVars, faults>>

-----------------------------------------------------------------------------
\* The process ends. Nothing is left of it but its replica's log.
Halt(b) ==
    /\ running' = running \ {b}
    /\ sessions' = sessions \ {b}
    /\ brokerEpoch' = [brokerEpoch EXCEPT ![b] = 0]
    /\ control' = [control EXCEPT ![b] = NoControl]
    /\ newestEpoch' = [newestEpoch EXCEPT ![b] = 0]
    /\ role' = [role EXCEPT ![b] = NoRole]
    /\ pending' = [pending EXCEPT ![b] = None]
    /\ metadata' = [metadata EXCEPT ![b] = None]
    /\ late' = [late EXCEPT ![b] = {}]
    /\ UNCHANGED <<czxid, controllerEpoch, topic, state, channel, log, dataVars>>

\* An unclean end: the session outlives the process.
Crash(b) ==
    /\ b \in running
    /\ Spend("crash")
    /\ Halt(b)
    /\ orphans' = IF b \in sessions THEN orphans \cup {b} ELSE orphans
    /\ Step("Crash", [from |-> b])
    /\ UNCHANGED <<registered, controllerNode>>

\* A clean end: the process closes its session, with or without a controlled shutdown before it.
ShutDown(b) ==
    /\ b \in running
    /\ IF \E c \in Brokers : b \in control[c].stopping THEN UNCHANGED faults ELSE Spend("stop")
    /\ Halt(b)
    /\ Vanish(b)
    /\ Step("ShutDown", [from |-> b, to |-> "zookeeper"])
    /\ UNCHANGED orphans

\* The process starts again, with its log and without a role.
Restart(b) ==
    /\ b \notin running
    /\ running' = running \cup {b}
    /\ Step("Restart", [from |-> b])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, brokerEpoch, replicaVars, dataVars, faults>>
=============================================================================
