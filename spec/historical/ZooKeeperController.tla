------------------------ MODULE ZooKeeperController -------------------------
(***************************************************************************)
(* The controller before KRaft: a variant of Controller.tla.  One broker   *)
(* is the controller because it holds the ephemeral node /controller in    *)
(* ZooKeeper.  When its session ends the node vanishes, a watch notifies   *)
(* the others, and the broker that creates the node again is the next      *)
(* controller, with a controller epoch that is one greater.                *)
(*                                                                         *)
(* A controller that was paused does not know that it was deposed: it goes *)
(* on with what it remembers, and its requests may still be on their way.  *)
(* Against this split brain ZooKeeper takes a decision only together with  *)
(* the newest controller epoch, and brokers refuse requests of an older    *)
(* one.  In KRaft the epoch of the quorum takes the place of both.         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Brokers, None, Expiries, Moves, RecordSteps, Bugs

KnownBugs == {
    "WriteWithoutControllerEpoch",  \* ZooKeeper takes the decision of a deposed controller
    "TakeFromDeposedController"}    \* brokers do not compare controller epochs
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    \* ZooKeeper's.
    registered,         \* brokers with a live session: their ephemeral nodes
    owner,              \* who holds /controller, an ephemeral node
    controllerEpoch,    \* /controller_epoch
    record,             \* the partition's state: leader, leader epoch, ISR, replicas
    \* Each broker's.
    control,            \* what it believes as the controller: epoch (0: it is none), live brokers, the partition's state
    channel,            \* requests from each controller to each broker, in order
    newestEpoch,        \* the newest controller epoch that it has learned of
    role,               \* the leader and the leader epoch that it acts by
    hasLog,             \* does it hold the partition's log
    \* The environment's.
    faults,
    step

stateVars == <<registered, owner, controllerEpoch, record, control, channel, newestEpoch, role, hasLog, faults>>
vars == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step

NoControl == [epoch |-> 0, live |-> {}, record |-> None]

Init ==
    \E first \in Brokers, leader \in Brokers :
        /\ record = [leader |-> leader, leaderEpoch |-> 1, isr |-> Brokers, replicas |-> Brokers]
        /\ registered = Brokers
        /\ owner = first
        /\ controllerEpoch = 1
        /\ control = [b \in Brokers |-> IF b = first THEN [epoch |-> 1, live |-> Brokers, record |-> record] ELSE NoControl]
        /\ channel = [c \in Brokers |-> [b \in Brokers |-> <<>>]]
        /\ newestEpoch = [b \in Brokers |-> 1]
        /\ role = [b \in Brokers |-> [leader |-> leader, leaderEpoch |-> 1]]
        /\ hasLog = [b \in Brokers |-> TRUE]
        /\ faults = [expiry |-> Expiries, move |-> Moves]
        /\ step = [action |-> "Init"]

-----------------------------------------------------------------------------
\* A pause, or a cut: the session ends and its ephemeral nodes vanish.  The
\* broker itself does not know.
ExpireSession(b) ==
    /\ faults.expiry > 0
    /\ b \in registered
    /\ faults' = [faults EXCEPT !.expiry = @ - 1]
    /\ registered' = registered \ {b}
    /\ owner' = IF owner = b THEN None ELSE owner
    /\ Step("ExpireSession", [from |-> b, to |-> "zookeeper"])
    /\ UNCHANGED <<controllerEpoch, record, control, channel, newestEpoch, role, hasLog>>

\* It finds out, resigns, and registers again.
RenewSession(b) ==
    /\ b \notin registered
    /\ registered' = registered \cup {b}
    /\ control' = [control EXCEPT ![b] = NoControl]
    /\ Step("RenewSession", [from |-> b, to |-> "zookeeper"])
    /\ UNCHANGED <<owner, controllerEpoch, record, channel, newestEpoch, role, hasLog, faults>>

SendRequests(c, decided, epoch, removed) ==
    channel' = [channel EXCEPT ![c] =
        [b \in Brokers |->
            IF b \in removed
            THEN Append(@[b], [kind |-> "StopReplica", controllerEpoch |-> epoch, leader |-> None,
                               leaderEpoch |-> decided.leaderEpoch])
            ELSE IF b \in decided.replicas
            THEN Append(@[b], [kind |-> "LeaderAndIsr", controllerEpoch |-> epoch, leader |-> decided.leader,
                               leaderEpoch |-> decided.leaderEpoch])
            ELSE @[b]]]

\* The watch fired: the node is gone.  Creating it and counting the epoch are
\* one step; then the new controller reads what there is, and sends it to all brokers.
ElectController(b) ==
    /\ owner = None
    /\ b \in registered
    /\ owner' = b
    /\ controllerEpoch' = controllerEpoch + 1
    /\ control' = [control EXCEPT ![b] = [epoch |-> controllerEpoch + 1, live |-> registered, record |-> record]]
    /\ SendRequests(b, record, controllerEpoch + 1, {})
    /\ Step("ElectController", [from |-> b, to |-> "zookeeper", epoch |-> controllerEpoch + 1])
    /\ UNCHANGED <<registered, record, newestEpoch, role, hasLog, faults>>

\* Another watch: brokers came or went.
SeeBrokers(c) ==
    /\ control[c].epoch > 0
    /\ c \in registered
    /\ control[c].live # registered
    /\ control' = [control EXCEPT ![c].live = registered]
    /\ Step("SeeBrokers", [from |-> "zookeeper", to |-> c])
    /\ UNCHANGED <<registered, owner, controllerEpoch, record, channel, newestEpoch, role, hasLog, faults>>

-----------------------------------------------------------------------------
\* A decision: written in ZooKeeper with the controller epoch as a condition,
\* then sent to the brokers.
Decide(c, decided, removed) ==
    /\ control[c].epoch = controllerEpoch \/ On("WriteWithoutControllerEpoch")
    /\ record' = decided
    /\ control' = [control EXCEPT ![c].record = decided]
    /\ SendRequests(c, decided, control[c].epoch, removed)
    /\ UNCHANGED <<registered, owner, controllerEpoch, newestEpoch, role, hasLog>>

\* The leader is gone: another live member of the ISR, as remembered, leads.
ElectPartitionLeader(c, l) ==
    LET known == control[c].record
        isr == known.isr \cap control[c].live
    IN  /\ control[c].epoch > 0
        /\ known.leader \notin control[c].live
        /\ l \in isr
        /\ Decide(c, [known EXCEPT !.leader = l, !.leaderEpoch = @ + 1, !.isr = isr], {})
        /\ UNCHANGED faults
        /\ Step("ElectPartitionLeader", [from |-> c, to |-> l, leaderEpoch |-> known.leaderEpoch + 1])

\* A reassignment takes the replica away from a broker: its log is deleted.
RemoveReplica(c, b) ==
    LET known == control[c].record
    IN  /\ control[c].epoch > 0
        /\ faults.move > 0
        /\ b \in known.replicas /\ b # known.leader
        /\ faults' = [faults EXCEPT !.move = @ - 1]
        /\ Decide(c, [known EXCEPT !.leaderEpoch = @ + 1, !.isr = @ \ {b}, !.replicas = @ \ {b}], {b})
        /\ Step("RemoveReplica", [from |-> c, to |-> b])

\* Another gives it back; it has to catch up before it is in sync.
AddReplica(c, b) ==
    LET known == control[c].record
    IN  /\ control[c].epoch > 0
        /\ b \notin known.replicas
        /\ Decide(c, [known EXCEPT !.leaderEpoch = @ + 1, !.replicas = @ \cup {b}], {})
        /\ UNCHANGED faults
        /\ Step("AddReplica", [from |-> c, to |-> b])

\* The leader itself writes the ISR, on condition that the state is still the
\* one of its leader epoch; the controller learns of it by a watch.
JoinIsr(l, b) ==
    /\ role[l] = [leader |-> l, leaderEpoch |-> record.leaderEpoch]
    /\ b \in record.replicas \ record.isr
    /\ role[b] = role[l] /\ hasLog[b]
    /\ record' = [record EXCEPT !.isr = @ \cup {b}]
    /\ control' = [c \in Brokers |-> IF control[c].epoch = controllerEpoch THEN [control[c] EXCEPT !.record = record'] ELSE control[c]]
    /\ Step("JoinIsr", [from |-> l, to |-> "zookeeper"])
    /\ UNCHANGED <<registered, owner, controllerEpoch, channel, newestEpoch, role, hasLog, faults>>

-----------------------------------------------------------------------------
IsFenced(b, request) == request.controllerEpoch < newestEpoch[b] /\ ~On("TakeFromDeposedController")

Arrives(c, b, kind) == channel[c][b] # <<>> /\ Head(channel[c][b]).kind = kind
Received(c, b) == channel' = [channel EXCEPT ![c][b] = Tail(@)]
LearnControllerEpoch(b, request) ==
    newestEpoch' = [newestEpoch EXCEPT ![b] = IF request.controllerEpoch > @ THEN request.controllerEpoch ELSE @]

\* The broker leads or follows as the request says, unless it knows a later leader epoch.
TakeLeaderAndIsr(c, b) ==
    /\ Arrives(c, b, "LeaderAndIsr")
    /\ LET request == Head(channel[c][b])
       IN  /\ ~IsFenced(b, request)
           /\ LearnControllerEpoch(b, request)
           /\ LET newer == request.leaderEpoch > role[b].leaderEpoch
              IN  /\ role' = IF newer THEN [role EXCEPT ![b] = [leader |-> request.leader, leaderEpoch |-> request.leaderEpoch]] ELSE role
                  /\ hasLog' = IF newer THEN [hasLog EXCEPT ![b] = TRUE] ELSE hasLog
           /\ Step("TakeLeaderAndIsr", [from |-> c, to |-> b, leaderEpoch |-> request.leaderEpoch])
    /\ Received(c, b)
    /\ UNCHANGED <<registered, owner, controllerEpoch, record, control, faults>>

\* The broker deletes its log.  The request names no leader epoch (before
\* KIP-570): only the controller epoch shows whether it is out of date.
TakeStopReplica(c, b) ==
    /\ Arrives(c, b, "StopReplica")
    /\ LET request == Head(channel[c][b])
       IN  /\ ~IsFenced(b, request)
           /\ LearnControllerEpoch(b, request)
           /\ role' = [role EXCEPT ![b].leader = None]
           /\ hasLog' = [hasLog EXCEPT ![b] = FALSE]
           /\ Step("TakeStopReplica", [from |-> c, to |-> b])
    /\ Received(c, b)
    /\ UNCHANGED <<registered, owner, controllerEpoch, record, control, faults>>

\* STALE_CONTROLLER_EPOCH.
RefuseRequest(c, b) ==
    /\ channel[c][b] # <<>>
    /\ IsFenced(b, Head(channel[c][b]))
    /\ Received(c, b)
    /\ Step("RefuseRequest", [from |-> b, to |-> c])
    /\ UNCHANGED <<registered, owner, controllerEpoch, record, control, newestEpoch, role, hasLog, faults>>

Next ==
    \/ \E b \in Brokers : ExpireSession(b) \/ RenewSession(b) \/ ElectController(b) \/ SeeBrokers(b)
    \/ \E c, b \in Brokers :
        \/ ElectPartitionLeader(c, b) \/ RemoveReplica(c, b) \/ AddReplica(c, b) \/ JoinIsr(c, b)
        \/ TakeLeaderAndIsr(c, b) \/ TakeStopReplica(c, b) \/ RefuseRequest(c, b)

Fairness ==
    /\ \A b \in Brokers : WF_vars(RenewSession(b)) /\ WF_vars(ElectController(b)) /\ WF_vars(SeeBrokers(b))
    /\ \A c, b \in Brokers :
        /\ WF_vars(ElectPartitionLeader(c, b)) /\ WF_vars(AddReplica(c, b))
        /\ WF_vars(TakeLeaderAndIsr(c, b) \/ TakeStopReplica(c, b) \/ RefuseRequest(c, b))

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ Fairness

-----------------------------------------------------------------------------
\* No split brain: a leader epoch belongs to one leader.
OneLeaderPerEpoch ==
    \A a, b \in Brokers :
        /\ role[a].leader = a /\ role[b].leader = b
        /\ role[a].leaderEpoch = role[b].leaderEpoch
        => a = b

\* Two may believe that they are the controller, but not in the same epoch.
OneControllerPerEpoch ==
    \A a, b \in Brokers : control[a].epoch > 0 /\ control[a].epoch = control[b].epoch => a = b

\* What is counted as in sync has not been deleted.
InSyncReplicasHaveTheLog == \A b \in record.isr : hasLog[b]

LeaderIsInIsr == record.leader \in record.isr /\ record.isr \subseteq record.replicas

EpochsNeverDecrease ==
    [][ /\ controllerEpoch' >= controllerEpoch
        /\ record'.leaderEpoch >= record.leaderEpoch
        /\ \A b \in Brokers : newestEpoch'[b] >= newestEpoch[b] /\ role'[b].leaderEpoch >= role[b].leaderEpoch ]_vars

\* Liveness: in the end there is a controller that knows it, and its brokers
\* act as the record says.
ControllerAppears == <>[](owner # None /\ control[owner].epoch = controllerEpoch)
BrokersFollowTheRecord ==
    <>[](\A b \in record.replicas : role[b] = [leader |-> record.leader, leaderEpoch |-> record.leaderEpoch])

Symmetry == Permutations(Brokers)
View == stateVars
=============================================================================
