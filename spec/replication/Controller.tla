---------------------------- MODULE Controller ------------------------------
(***************************************************************************)
(* Chapter 3: the controller.  It registers brokers, fences those whose    *)
(* heartbeats stop, elects leaders and judges the ISRs that leaders        *)
(* propose.  Each decision is one metadata record: the partition epoch     *)
(* grows with every record, the leader epoch with every change of leader.  *)
(*                                                                         *)
(* Here the controller is one and never fails; how a quorum makes it so is *)
(* the subject of quorum/Quorum.tla; how it was done with ZooKeeper, of    *)
(* historical/ZooKeeperController.tla.                                     *)
(***************************************************************************)
EXTENDS Cluster

Unfenced == {b \in Brokers : ~registry[b].fenced}

\* A running broker replays a record once it is newer than what it acts by.
\* A follower has no use for records of a reign that it already follows.
Replayable(b, record, known, state) ==
    /\ state[b] = "running"
    /\ record.partitionEpoch > known[b].partitionEpoch
    /\ record.leaderEpoch > known[b].leaderEpoch \/ known[b].leader = b

\* Records that nobody can replay any more are forgotten, so that states
\* which differ only in their past are the same state.
Wanted(records, newest, known, state) ==
    {newest} \cup {r \in records : \E b \in Brokers : Replayable(b, r, known, state)}

Publish(record) ==
    LET newest == [record EXCEPT !.partitionEpoch = partition.partitionEpoch + 1]
    IN  /\ partition' = newest
        /\ published' = Wanted(published \cup {newest}, newest, metadata', status')

-----------------------------------------------------------------------------
\* KIP-966.  While the ISR is smaller than min.insync.replicas the high
\* watermark stands still, so whoever leaves it has every committed record:
\* it stays eligible to lead, unless it may have lost its tail.
EligibleAfter(isr, unclean) ==
    IF Cardinality(isr) >= MinIsr \/ On("LastReplicaStanding")
    THEN {}
    ELSE (partition.elr \cup partition.isr) \ (isr \cup unclean)

IsrWithout(b) ==
    IF On("LastReplicaStanding") /\ partition.isr = {b} THEN {b} ELSE partition.isr \ {b}

UncleanlyLed(b) == [partition EXCEPT !.leader = b, !.leaderEpoch = @ + 1, !.isr = {b}, !.elr = {}]

\* The records that the controller may write when ISR, ELR and the unfenced
\* brokers are these: the leader stays if it can; otherwise any live member
\* of the ISR leads, or, where the ISR is empty, any live member of the ELR.
\* Where neither has one nobody leads, or, if that is allowed, anybody alive.
Elections(isr, elr, unfenced) ==
    LET eligible  == IF isr = {} THEN elr ELSE isr
        electable == IF eligible \cap unfenced = {} /\ On("ElectOutsideIsr") THEN unfenced
                     ELSE eligible \cap unfenced
        led(b) == [partition EXCEPT !.leader = b, !.leaderEpoch = @ + 1,
                                    !.isr = IF b \in isr THEN isr ELSE {b}, !.elr = elr \ {b}]
        uncleanly == IF UncleanElection THEN {UncleanlyLed(b) : b \in unfenced} ELSE {}
    IN  IF partition.leader \in isr \cap unfenced THEN {[partition EXCEPT !.isr = isr, !.elr = elr]}
        ELSE IF electable # {} THEN {led(b) : b \in electable}
        ELSE uncleanly \cup
             IF partition.leader = None THEN {[partition EXCEPT !.isr = isr, !.elr = elr]}
             ELSE {[partition EXCEPT !.leader = None, !.leaderEpoch = @ + 1, !.isr = isr, !.elr = elr]}

Decide(isr, elr, unfenced) ==
    \E record \in Elections(isr, elr, unfenced) :
        IF record = partition
        THEN /\ partition' = partition
             /\ published' = Wanted(published, partition, metadata', status')
        ELSE Publish(record)

-----------------------------------------------------------------------------
\* A broker that came back introduces itself.  It gets a new broker epoch
\* and stays fenced until it has replayed the metadata.  One that did not
\* shut down cleanly may have lost records: it leaves ISR and ELR.
RegisterBroker(b) ==
    /\ status[b] \in {"recovered", "returned"}
    /\ LET isr      == IsrWithout(b)
           elr      == EligibleAfter(isr, IF status[b] = "recovered" THEN {b} ELSE {})
           affected == partition \notin Elections(isr, elr, Unfenced \ {b})
           \* The first record that it may replay is the one that its registration leaves behind.
           known    == [NoMetadata EXCEPT !.partitionEpoch = partition.partitionEpoch - (IF affected THEN 0 ELSE 1)]
       IN  /\ status'   = [status EXCEPT ![b] = "running"]
           /\ registry' = [registry EXCEPT ![b] = [brokerEpoch |-> @.brokerEpoch + 1, fenced |-> TRUE]]
           /\ metadata' = IF On("ServeBeforeReplay") THEN metadata ELSE [metadata EXCEPT ![b] = known]
           /\ Decide(isr, elr, Unfenced \ {b})
    /\ Step("RegisterBroker", [broker |-> b])
    /\ UNCHANGED <<log, highWatermark, progress, pending, truncating, clientVars, environmentVars>>

\* Heartbeats say that the broker has caught up with the metadata.
HasReplayed(b) == metadata[b].leaderEpoch > 0

UnfenceBroker(b) ==
    /\ Running(b)
    /\ registry[b].fenced
    /\ HasReplayed(b)
    /\ registry' = [registry EXCEPT ![b].fenced = FALSE]
    /\ UNCHANGED <<replicaVars, clientVars, environmentVars>>
    /\ Decide(partition.isr, partition.elr, Unfenced \cup {b})
    /\ Step("UnfenceBroker", [broker |-> b])

\* No heartbeat came in time.  The broker may be dead, or merely cut off and
\* still sure that it leads.
FenceBroker(b) ==
    /\ ~registry[b].fenced
    /\ IF Running(b) THEN Spend("fence") ELSE UNCHANGED faults
    /\ registry' = [registry EXCEPT ![b].fenced = TRUE]
    /\ UNCHANGED <<replicaVars, clientVars, lostTail>>
    /\ LET isr == IsrWithout(b) IN Decide(isr, EligibleAfter(isr, {}), Unfenced \ {b})
    /\ Step("FenceBroker", [broker |-> b])

\* A broker asks leave to stop: its leadership and its place in the ISR go
\* to others first.  From here on it is fenced, and stops when it pleases.
ControlledShutdown(b) ==
    /\ Running(b)
    /\ ~registry[b].fenced
    /\ Spend("stop")
    /\ registry' = [registry EXCEPT ![b].fenced = TRUE]
    /\ UNCHANGED <<replicaVars, clientVars, lostTail>>
    /\ LET isr == IsrWithout(b) IN Decide(isr, EligibleAfter(isr, {}), Unfenced \ {b})
    /\ Step("ControlledShutdown", [broker |-> b])

-----------------------------------------------------------------------------
\* Who is not fenced, in the life that the leader saw, may be in the ISR.  Of
\* a member that has not fetched in this reign the leader has seen none: had it
\* begun another since, it would have left the ISR, and the proposal be stale.
Ineligible(proposal) ==
    {b \in proposal.isr :
        \/ registry[b].fenced /\ ~On("AdmitFencedBroker")
        \/ /\ proposal.brokerEpochs[b] \notin {registry[b].brokerEpoch, UnknownLife}
           /\ ~On("AdmitStaleBrokerEpoch")}

IsForThisEpoch(proposal) ==
    /\ proposal.leaderEpoch = partition.leaderEpoch
    /\ proposal.partitionEpoch = partition.partitionEpoch

\* The leader's proposal is accepted.  It need not be alive any more.  A new
\* member that meanwhile came back without its tail is still short of it: it
\* will leave again when it registers.
AlterPartition(l) ==
    /\ pending[l] # None
    /\ partition.leader = l
    /\ IsForThisEpoch(pending[l])
    /\ Ineligible(pending[l]) = {}
    /\ UNCHANGED <<replicaVars, clientVars, registry, faults>>
    /\ lostTail' = lostTail \ {b \in pending[l].isr \ partition.isr : Running(b)}
    /\ Publish([partition EXCEPT !.isr = pending[l].isr, !.elr = EligibleAfter(pending[l].isr, {})])
    /\ Step("AlterPartition", [leader |-> l, isr |-> pending[l].isr])

\* Leadership moves to another live member of the ISR without any failure:
\* the preferred replica, or an administrator's wish.
ElectLeader(b) ==
    /\ partition.leader # b
    /\ b \in partition.isr \cap Unfenced
    /\ Spend("elect")
    /\ UNCHANGED <<replicaVars, clientVars, registry, lostTail>>
    /\ Publish([partition EXCEPT !.leader = b, !.leaderEpoch = @ + 1])
    /\ Step("ElectLeader", [broker |-> b])

\* Availability is preferred: some live replica leads, whatever it lacks.
ElectUncleanLeader(b) ==
    /\ UncleanElection
    /\ partition.leader = None
    /\ b \in Unfenced
    /\ UNCHANGED <<replicaVars, clientVars, registry, environmentVars>>
    /\ Publish(UncleanlyLed(b))
    /\ Step("ElectUncleanLeader", [broker |-> b])
=============================================================================
