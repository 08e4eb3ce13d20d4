--------------------------- MODULE ZooKeeperBroker ---------------------------
(***************************************************************************)
(* Chapter 3: brokers handle the controller's requests, lead and follow by *)
(* them, and change the ISR.                                               *)
(*                                                                         *)
(* A broker refuses a request of a controller epoch older than the newest  *)
(* that it has learned of, a request for an earlier broker epoch of its    *)
(* own (KIP-380), and a StopReplica of an older leader epoch (KIP-570). A  *)
(* log is a set of records here: a follower copies its leader's in one     *)
(* step. `replication/` has replication record by record.                  *)
(***************************************************************************)
EXTENDS ZooKeeperController

\* The requests that may arrive next: the first of each controller's queue, and late copies.
Arriving(b) == {Head(channel[e][b]) : e \in {e \in DOMAIN channel : channel[e][b] # <<>>}} \cup late[b]

\* The request arrives, from its queue or as a late copy.
Received(b, request) ==
    \/ /\ channel[request.controllerEpoch][b] # <<>>
       /\ Head(channel[request.controllerEpoch][b]) = request
       /\ channel' = [channel EXCEPT ![request.controllerEpoch][b] = Tail(@)]
       /\ UNCHANGED late
    \/ /\ request \in late[b]
       /\ late' = [late EXCEPT ![b] = @ \ {request}]
       /\ UNCHANGED channel

\* The controller's request timed out and is sent again; the first copy is still on its way.
CopyLate(b, request) ==
    /\ Spend("copy")
    /\ request.kind = "StopReplica" /\ ~(request \in late[b])
    /\ late' = [late EXCEPT ![b] = @ \cup {request}]
    /\ Step("CopyLate", [from |-> "controller", to |-> b])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, control, channel, processVars, replicaVars, dataVars>>

-----------------------------------------------------------------------------
IsOfDeposedController(b, request) ==
    request.controllerEpoch < newestEpoch[b] /\ ~On("TakeFromDeposedController")
IsForEarlierRegistration(b, request) ==
    request.brokerEpoch < brokerEpoch[b] /\ ~On("IgnoreBrokerEpoch")
IsOfEarlierLeaderEpoch(b, request) ==
    /\ request.kind = "StopReplica" /\ request.leaderEpoch # DeletedTopic
    /\ request.leaderEpoch < role[b].leaderEpoch /\ ~On("StopReplicaWithoutLeaderEpoch")

\* Whether the broker accepts the request; it then learns the controller epoch. A broker serves once it is registered.
Takes(b, request) ==
    /\ b \in running /\ brokerEpoch[b] # 0
    /\ ~IsOfDeposedController(b, request) /\ ~IsForEarlierRegistration(b, request)
    /\ ~IsOfEarlierLeaderEpoch(b, request)
    /\ newestEpoch' = [newestEpoch EXCEPT ![b] = request.controllerEpoch]

\* Whether the request has a newer leader epoch than the broker acts in.
IsNews(b, request) ==
    /\ role[b].topic \in {0, request.topic}
    /\ request.leaderEpoch > role[b].leaderEpoch

\* LeaderAndIsr: the broker leads or follows as requested, unless it acts in that leader epoch or a later one.
TakeLeaderAndIsr(b, request) ==
    /\ request.kind = "LeaderAndIsr"
    /\ Takes(b, request)
    /\ Received(b, request)
    /\ IF IsNews(b, request)
       THEN /\ role' = [role EXCEPT ![b] = RoleBy(b, request)]
            /\ pending' = [pending EXCEPT ![b] = None]
            /\ log' = IF log[b] = None THEN [log EXCEPT ![b] = [topic |-> request.topic, records |-> {}]] ELSE log
       ELSE UNCHANGED <<role, pending, log>>
    /\ Step("TakeLeaderAndIsr", [from |-> "controller", to |-> b, leaderEpoch |-> request.leaderEpoch])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, control, processVars, metadata, dataVars, faults>>

\* StopReplica: the broker neither leads nor follows any more. It deletes its log if requested, and then answers.
TakeStopReplica(b, request) ==
    /\ request.kind = "StopReplica"
    /\ Takes(b, request)
    /\ Received(b, request)
    /\ role' = [role EXCEPT ![b] = NoRole]
    /\ pending' = [pending EXCEPT ![b] = None]
    /\ log' = IF request.deletes THEN [log EXCEPT ![b] = None] ELSE log
    /\ control' = [c \in Brokers |->
           IF control[c].deletes /\ control[c].epoch = request.controllerEpoch /\ request.deletes
           THEN [control[c] EXCEPT !.deleted = @ \cup {b}] ELSE control[c]]
    /\ Step("TakeStopReplica", [from |-> "controller", to |-> b, deletes |-> request.deletes])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, processVars, metadata, dataVars, faults>>

\* UpdateMetadata: the broker returns this leader to clients.
TakeUpdateMetadata(b, request) ==
    /\ request.kind = "UpdateMetadata"
    /\ Takes(b, request)
    /\ Received(b, request)
    /\ metadata' = [metadata EXCEPT ![b] = [leader |-> request.leader, leaderEpoch |-> request.leaderEpoch]]
    /\ Step("TakeUpdateMetadata", [from |-> "controller", to |-> b, leaderEpoch |-> request.leaderEpoch])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, control, processVars, role, pending, log, dataVars, faults>>

\* The broker refuses a request with STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH or FENCED_LEADER_EPOCH.
RefuseRequest(b, request) ==
    /\ b \in running /\ brokerEpoch[b] # 0
    /\ \/ IsOfDeposedController(b, request)
       \/ IsForEarlierRegistration(b, request)
       \/ IsOfEarlierLeaderEpoch(b, request)
    /\ Received(b, request)
    /\ Step("RefuseRequest", [from |-> b, to |-> "controller", request |-> request.kind])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, control, processVars, replicaVars, dataVars, faults>>

-----------------------------------------------------------------------------
Leads(b) == b \in running /\ role[b].leader = b
\* The replicas that a leader waits for before it commits: its ISR, and a pending one (KIP-497).
MaximalIsr(l) == role[l].isr \cup IF pending[l] = None THEN {} ELSE pending[l].isr
RecordsOf(b, id) == IF log[b] = None THEN {} ELSE IF log[b].topic = id THEN log[b].records ELSE {}

\* Before 2.7 the leader writes the partition's state over the version that it knows, in its own session.
WriteIsr(l, isr) ==
    /\ ~AlterPartitions
    /\ HasSession(l)
    /\ state # None
    /\ state.version = role[l].version \/ On("WriteIsrWithoutVersion")
    /\ state' = [state EXCEPT !.leader = l, !.leaderEpoch = role[l].leaderEpoch, !.isr = isr, !.version = @ + 1]
    /\ role' = [role EXCEPT ![l].isr = isr, ![l].version = state'.version]
    /\ UNCHANGED pending

\* Since 2.7 the leader asks the controller (KIP-497), and counts both ISRs until it has the response.
ProposeIsr(l, isr) ==
    /\ AlterPartitions
    /\ pending' = [pending EXCEPT ![l] =
           [isr |-> isr, leaderEpoch |-> role[l].leaderEpoch, version |-> role[l].version, answered |-> 0]]
    /\ UNCHANGED <<state, role>>

ChangeIsr(l, isr) ==
    /\ pending[l] = None
    /\ WriteIsr(l, isr) \/ ProposeIsr(l, isr)
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, controllerVars, processVars, newestEpoch, metadata, log, dataVars>>

\* A follower of the same leader epoch has caught up, and joins the ISR.
ExpandIsr(l, f) ==
    /\ Leads(l)
    /\ f \in running \ role[l].isr
    /\ role[f].leader = l /\ role[f].leaderEpoch = role[l].leaderEpoch
    /\ RecordsOf(f, role[l].topic) = RecordsOf(l, role[l].topic)
    /\ ChangeIsr(l, role[l].isr \cup {f})
    /\ Step("ExpandIsr", [from |-> l, to |-> "zookeeper", follower |-> f])
    /\ UNCHANGED faults

\* A follower is slow, or gone, and leaves the ISR.
ShrinkIsr(l, f) ==
    /\ Leads(l)
    /\ Spend("shrink")
    /\ f \in role[l].isr \ {l}
    /\ ChangeIsr(l, role[l].isr \ {f})
    /\ Step("ShrinkIsr", [from |-> l, to |-> "zookeeper", follower |-> f])

\* The leader has the controller's response.
CommitIsr(l) ==
    /\ Leads(l) /\ pending[l] # None
    /\ pending[l].answered # 0
    /\ role' = [role EXCEPT ![l].isr = pending[l].isr, ![l].version = pending[l].answered]
    /\ pending' = [pending EXCEPT ![l] = None]
    /\ Step("CommitIsr", [from |-> "controller", to |-> l])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, metadata, log,
                   dataVars, faults>>

-----------------------------------------------------------------------------
Produce(l) ==
    /\ Leads(l) /\ log[l] # None
    /\ produced < Records
    /\ produced' = produced + 1
    /\ log' = [log EXCEPT ![l].records = @ \cup {produced + 1}]
    /\ Step("Produce", [from |-> "client", to |-> l])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, role, pending,
                   metadata, committed, faults>>

\* The follower truncates what the leader does not have, and copies the rest.
AppendFetched(f, l) ==
    /\ Leads(l) /\ log[l] # None
    /\ f \in running /\ role[f].leader = l /\ f # l
    /\ role[f].topic = role[l].topic /\ role[f].leaderEpoch = role[l].leaderEpoch
    /\ log[f] # log[l]
    /\ log' = [log EXCEPT ![f] = log[l]]
    /\ Step("AppendFetched", [from |-> l, to |-> f])
    /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, newestEpoch, role, pending,
                   metadata, dataVars, faults>>

\* The records that the whole maximal ISR has are committed, unless the topic is to be deleted.
AdvanceHighWatermark(l) ==
    LET shared == {n \in RecordsOf(l, topic.id) : \A b \in MaximalIsr(l) : n \in RecordsOf(b, topic.id)}
    IN  /\ Leads(l)
        /\ topic.status = "there" /\ role[l].topic = topic.id
        /\ shared \ committed # {}
        /\ committed' = committed \cup shared
        /\ Step("AdvanceHighWatermark", [from |-> l])
        /\ UNCHANGED <<zooKeeperVars, controllerEpoch, topic, state, controllerVars, processVars, replicaVars, produced, faults>>
=============================================================================
