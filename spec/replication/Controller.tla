---------------------------- MODULE Controller ------------------------------
(***************************************************************************)
(* Chapter 3: the controller.  It registers brokers, fences those whose    *)
(* heartbeats stop, elects leaders, judges the ISRs that leaders propose,   *)
(* and gives the partition other replicas.  Each decision is one metadata  *)
(* record: the partition epoch grows with every record, the leader epoch   *)
(* with every change of leader, and where a replica is taken away.         *)
(*                                                                         *)
(* Here the controller is one and never fails; how a quorum makes it so is *)
(* the subject of quorum/Quorum.tla; how it was done with ZooKeeper, of    *)
(* historical/ZooKeeperController.tla.                                     *)
(***************************************************************************)
EXTENDS Cluster

Unfenced == {b \in Brokers : ~registry[b].fenced}

\* A running broker replays a record once it is newer than what it acts by.
\* A follower has no use for records of a leader epoch that it already follows, nor
\* who has no replica for records that give it none.
Replayable(b, record, known, state) ==
    /\ state[b] = "running"
    /\ record.partitionEpoch > known[b].partitionEpoch
    /\ IF b \in record.replicas THEN record.leaderEpoch > known[b].leaderEpoch \/ known[b].leader = b
       ELSE b \in known[b].replicas

\* Records that no broker can replay any more are forgotten, so that states
\* which differ only in their past are the same state.
Wanted(records, newest, known, state) ==
    {newest} \cup {r \in records : \E b \in Brokers : Replayable(b, r, known, state)}

Publish(record) ==
    LET newest == [record EXCEPT !.partitionEpoch = partition.partitionEpoch + 1]
    IN  /\ partition' = newest
        /\ published' = Wanted(published \cup {newest}, newest, metadata', status')

-----------------------------------------------------------------------------
\* KIP-455.  A reassignment is over once all added replicas are in sync; where
\* fewer are added than removed, once all that stay are.  Then the removed leave.
Completed(record) ==
    LET staying == record.replicas \ record.removing
        isr     == record.isr \ record.removing
        needed  == record.adding \cup
                   (IF Cardinality(record.adding) < Cardinality(record.removing) THEN staying ELSE {})
    IN  IF record.adding \cup record.removing = {} \/ isr = {} \/ ~(needed \subseteq isr) THEN record
        ELSE [record EXCEPT !.isr = isr, !.replicas = staying, !.adding = {}, !.removing = {}]

\* KIP-966.  While the ISR is smaller than min.insync.replicas the high
\* watermark does not advance, so a broker that leaves it has every committed
\* record: it stays eligible to lead, unless it may have lost its tail, or has
\* no replica any more: fewer replicas may commit without it.
EligibleAfter(record, unclean) ==
    IF Cardinality(record.isr) >= RequiredIsr(partition) \/ On("LastReplicaStanding")
    THEN {}
    ELSE ((partition.elr \cup partition.isr) \cap (IF On("KeepDroppedEligible") THEN Brokers ELSE record.replicas))
         \ (record.isr \cup unclean)

\* The record that a change comes to, before a leader is elected.
Changed(record, unclean) ==
    LET next == Completed(record) IN [next EXCEPT !.elr = EligibleAfter(next, unclean)]

WithIsr(isr, unclean) == Changed([partition EXCEPT !.isr = isr], unclean)

IsrWithout(b) ==
    IF On("LastReplicaStanding") /\ partition.isr = {b} THEN {b} ELSE partition.isr \ {b}

UncleanlyLed(record, b) == [record EXCEPT !.leader = b, !.leaderEpoch = @ + 1, !.isr = {b}, !.elr = {}]

\* The records that the controller may write for a change, with these brokers
\* unfenced: the leader stays if it can; otherwise any live member of the ISR
\* leads, or, where the ISR is empty, any live member of the ELR.  Where
\* neither has one there is no leader or, if unclean elections are on, any live
\* replica leads.  A leader that stays where a replica was removed begins
\* another leader epoch.
Elections(next, unfenced) ==
    LET alive     == unfenced \cap next.replicas
        eligible  == IF next.isr = {} THEN next.elr ELSE next.isr
        electable == IF eligible \cap alive = {} /\ On("ElectOutsideIsr") THEN alive
                     ELSE eligible \cap alive
        led(b) == [next EXCEPT !.leader = b, !.leaderEpoch = @ + 1,
                               !.isr = IF b \in next.isr THEN @ ELSE {b}, !.elr = @ \ {b}]
        again == IF partition.replicas \subseteq next.replicas THEN next ELSE [next EXCEPT !.leaderEpoch = @ + 1]
        uncleanly == IF UncleanElection THEN {UncleanlyLed(next, b) : b \in alive} ELSE {}
    IN  IF partition.leader \in next.isr \cap alive THEN {again}
        ELSE IF electable # {} THEN {led(b) : b \in electable}
        ELSE uncleanly \cup
             IF partition.leader = None THEN {again}
             ELSE {[next EXCEPT !.leader = None, !.leaderEpoch = @ + 1]}

Decide(next, unfenced) ==
    \E record \in Elections(next, unfenced) :
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
    /\ LET next     == WithIsr(IsrWithout(b), IF status[b] = "recovered" THEN {b} ELSE {})
           affected == partition \notin Elections(next, Unfenced \ {b})
           \* The first record that it may replay is the one that its registration leaves behind.
           known    == [NoMetadata EXCEPT !.partitionEpoch = partition.partitionEpoch - (IF affected THEN 0 ELSE 1)]
       IN  /\ status'   = [status EXCEPT ![b] = "running"]
           /\ registry' = [registry EXCEPT ![b] = [brokerEpoch |-> @.brokerEpoch + 1, fenced |-> TRUE]]
           /\ metadata' = IF On("ServeBeforeReplay") THEN metadata ELSE [metadata EXCEPT ![b] = known]
           /\ Decide(next, Unfenced \ {b})
    /\ Step("RegisterBroker", [broker |-> b])
    /\ UNCHANGED <<log, highWatermark, progress, pending, truncating, clientVars, environmentVars>>

\* Heartbeats say that the broker has caught up with the metadata.
HasReplayed(b) == metadata[b].leaderEpoch > 0 \/ b \notin metadata[b].replicas

UnfenceBroker(b) ==
    /\ Running(b)
    /\ registry[b].fenced
    /\ HasReplayed(b)
    /\ registry' = [registry EXCEPT ![b].fenced = FALSE]
    /\ UNCHANGED <<replicaVars, clientVars, environmentVars>>
    /\ Decide(WithIsr(partition.isr, {}), Unfenced \cup {b})
    /\ Step("UnfenceBroker", [broker |-> b])

\* No heartbeat came in time.  The broker may be dead, or merely cut off and
\* still sure that it leads.
FenceBroker(b) ==
    /\ ~registry[b].fenced
    /\ IF Running(b) THEN Spend("fence") ELSE UNCHANGED faults
    /\ registry' = [registry EXCEPT ![b].fenced = TRUE]
    /\ UNCHANGED <<replicaVars, clientVars, lostTail>>
    /\ Decide(WithIsr(IsrWithout(b), {}), Unfenced \ {b})
    /\ Step("FenceBroker", [broker |-> b])

\* A broker asks leave to stop: its leadership and its place in the ISR go
\* to others first.  From here on it is fenced, and stops when it pleases.
ControlledShutdown(b) ==
    /\ Running(b)
    /\ ~registry[b].fenced
    /\ Spend("stop")
    /\ registry' = [registry EXCEPT ![b].fenced = TRUE]
    /\ UNCHANGED <<replicaVars, clientVars, lostTail>>
    /\ Decide(WithIsr(IsrWithout(b), {}), Unfenced \ {b})
    /\ Step("ControlledShutdown", [broker |-> b])

-----------------------------------------------------------------------------
\* A member of the ISR must be unfenced, with the broker epoch that the leader
\* saw.  The leader knows none of a member that has not fetched in this leader
\* epoch: had that one registered again since, it would have left the ISR, and
\* the proposal would be stale.
Ineligible(proposal) ==
    {b \in proposal.isr :
        \/ registry[b].fenced /\ ~On("AdmitFencedBroker")
        \/ /\ proposal.brokerEpochs[b] \notin {registry[b].brokerEpoch, UnknownBrokerEpoch}
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
    /\ Decide(WithIsr(pending[l].isr, {}), Unfenced)
    /\ Step("AlterPartition", [leader |-> l, isr |-> pending[l].isr])

\* Leadership moves to another live member of the ISR without any failure:
\* the preferred replica, or an administrator's wish.
ElectLeader(b) ==
    /\ partition.leader # b
    /\ b \in Completed(partition).isr \cap Unfenced
    /\ Spend("elect")
    /\ UNCHANGED <<replicaVars, clientVars, registry, lostTail>>
    /\ Publish([Completed(partition) EXCEPT !.leader = b, !.leaderEpoch = @ + 1])
    /\ Step("ElectLeader", [broker |-> b])

\* Availability is preferred: some live replica leads, whatever it lacks.
ElectUncleanLeader(b) ==
    /\ UncleanElection
    /\ partition.leader = None
    /\ b \in Unfenced \cap partition.replicas
    /\ UNCHANGED <<replicaVars, clientVars, registry, environmentVars>>
    /\ Publish(UncleanlyLed(partition, b))
    /\ Step("ElectUncleanLeader", [broker |-> b])

-----------------------------------------------------------------------------
\* An administrator gives the partition other replicas (KIP-455).  Added
\* replicas join at once and have to catch up; removed ones stay until then.
\* Where a new target adds (or removes) no replica, the former adding (or
\* removing) set is kept.
\* Only the order of the replicas may be new, so that there is a record always.
Reassign(replicas) ==
    /\ replicas # {}
    /\ Spend("reassign")
    /\ UNCHANGED <<replicaVars, clientVars, registry, lostTail>>
    /\ LET going  == partition.replicas \ replicas
           coming == replicas \ partition.replicas
           wished == [partition EXCEPT !.replicas = @ \cup replicas,
                                       !.removing = IF going = {} THEN @ ELSE going,
                                       !.adding   = IF coming = {} THEN @ ELSE coming]
       IN  \E record \in Elections(Changed(wished, {}), Unfenced) : Publish(record)
    /\ Step("Reassign", [replicas |-> replicas])

\* Back to the replicas of before.  Where only new ones are in sync that takes
\* an unclean election.
CallOffReassignment ==
    /\ partition.adding \cup partition.removing # {}
    /\ Spend("reassign")
    /\ UNCHANGED <<replicaVars, clientVars, registry, lostTail>>
    /\ LET staying == partition.replicas \ partition.adding
           inSync  == partition.isr \ partition.adding
       IN  \E isr \in IF inSync # {} THEN {inSync} ELSE IF UncleanElection THEN {{b} : b \in staying} ELSE {} :
               Decide(Changed([partition EXCEPT !.isr = isr, !.replicas = staying, !.adding = {}, !.removing = {}], {}),
                      Unfenced)
    /\ Step("CallOffReassignment", [replicas |-> partition'.replicas])

\* min.insync.replicas is set, for all of the topic.  That makes the ELR
\* meaningless (KIP-966); only where something is forgotten with it (the last
\* leader, too, of a partition without one) is there a new epoch.
ChangeMinIsr(minIsr) ==
    LET set == [partition EXCEPT !.minIsr = minIsr, !.elr = {}]
    IN  /\ Spend("reconfigure")
        /\ UNCHANGED <<registry, replicaVars, clientVars, lostTail>>
        /\ IF partition.elr # {} \/ partition.leader = None THEN Publish(set)
           ELSE /\ partition' = set
                /\ published' = Wanted(published \cup {set}, set, metadata, status)
        /\ Step("ChangeMinIsr", [minIsr |-> minIsr])
=============================================================================
