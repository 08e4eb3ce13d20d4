---------------------------- MODULE Controller ------------------------------
(***************************************************************************)
(* Chapter 3: the controller. It registers brokers, fences brokers whose   *)
(* heartbeats stop, elects leaders, judges the ISRs that leaders propose,  *)
(* and reassigns the partition. Each decision about the partition is one   *)
(* metadata record, which raises the partition epoch; only a change of     *)
(* min.insync.replicas may go without one. The leader epoch grows with     *)
(* every change of leader, and when a replica is removed.                  *)
(*                                                                         *)
(* Here there is one controller, and it never fails. quorum/Quorum.tla     *)
(* shows how a quorum provides that, and                                   *)
(* historical/ZooKeeperController.tla how ZooKeeper did.                   *)
(***************************************************************************)
EXTENDS Cluster

Unfenced == {b \in Brokers : ~registry[b].fenced}

\* Whether the broker has to replay the record. A running broker replays records that are newer than the one it acts
\* by. Records without effect are left out: for a follower those of its own leader epoch, for a broker without a
\* replica those that give it none.
Replayable(b, record, known, state) ==
    /\ state[b] = "running"
    /\ record.partitionEpoch > known[b].partitionEpoch
    /\ IF b \in record.replicas THEN record.leaderEpoch > known[b].leaderEpoch \/ known[b].leader = b
       ELSE b \in known[b].replicas

\* Records that no broker can replay any more are dropped, so that states which differ only in their past are the same
\* state.
Wanted(records, newest, known, state) ==
    {newest} \cup {r \in records : \E b \in Brokers : Replayable(b, r, known, state)}

\* Write the record with the next partition epoch.
Publish(record) ==
    LET newest == [record EXCEPT !.partitionEpoch = partition.partitionEpoch + 1]
    IN  /\ partition' = newest
        /\ published' = Wanted(published \cup {newest}, newest, metadata', status')

-----------------------------------------------------------------------------
\* KIP-455. A reassignment is over once all adding replicas are in the ISR; where fewer are added than removed, once
\* all staying replicas are. Then the removing replicas leave.
Completed(record) ==
    LET staying == record.replicas \ record.removing
        isr     == record.isr \ record.removing
        needed  == record.adding \cup
                   (IF Cardinality(record.adding) < Cardinality(record.removing) THEN staying ELSE {})
    IN  IF record.adding \cup record.removing = {} \/ isr = {} \/ ~(needed \subseteq isr) THEN record
        ELSE [record EXCEPT !.isr = isr, !.replicas = staying, !.adding = {}, !.removing = {}]

\* The ELR after a change (KIP-966). While the ISR is smaller than min.insync.replicas the high watermark does not
\* advance. So a broker that leaves such an ISR has every committed record, and stays eligible to lead. Exceptions are
\* a broker that may have lost its tail (`unclean`), and one that has no replica any more: fewer replicas may then
\* commit without it.
EligibleAfter(record, unclean) ==
    IF Cardinality(record.isr) >= RequiredIsr(partition) \/ On("LastReplicaStanding")
    THEN {}
    ELSE ((partition.elr \cup partition.isr) \cap (IF On("KeepDroppedEligible") THEN Brokers ELSE record.replicas))
         \ (record.isr \cup unclean)

\* The record after a change, before a leader is elected: a reassignment may be over, and the ELR is a new one.
Changed(record, unclean) ==
    LET next == Completed(record) IN [next EXCEPT !.elr = EligibleAfter(next, unclean)]

WithIsr(isr, unclean) == Changed([partition EXCEPT !.isr = isr], unclean)

IsrWithout(b) ==
    IF On("LastReplicaStanding") /\ partition.isr = {b} THEN {b} ELSE partition.isr \ {b}

\* The record of an unclean election: the new leader is alone in the ISR.
UncleanlyLed(record, b) == [record EXCEPT !.leader = b, !.leaderEpoch = @ + 1, !.isr = {b}, !.elr = {}]

\* The records that the controller may write for a change, given the unfenced brokers. The leader stays if it is
\* unfenced and in the ISR. Otherwise any unfenced member of the ISR leads or, where the ISR is empty, any unfenced
\* member of the ELR. Where there is none the partition has no leader or, if unclean election is enabled, any unfenced
\* replica leads. A leader that stays begins another leader epoch if a replica was removed.
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

\* Elect a leader and write the record, if it differs from the present one.
Decide(next, unfenced) ==
    \E record \in Elections(next, unfenced) :
        IF record = partition
        THEN /\ partition' = partition
             /\ published' = Wanted(published, partition, metadata', status')
        ELSE Publish(record)

-----------------------------------------------------------------------------
\* A restarted broker registers. It gets a new broker epoch, leaves the ISR, and is fenced until it has replayed the
\* metadata. After an unclean shutdown it may have lost records: it leaves the ELR, too (KIP-966).
RegisterBroker(b) ==
    /\ status[b] \in {"recovered", "returned"}
    /\ LET next     == WithIsr(IsrWithout(b), IF status[b] = "recovered" THEN {b} ELSE {})
           affected == partition \notin Elections(next, Unfenced \ {b})
           \* The first record that it may replay is the partition's newest one after its registration.
           known    == [NoMetadata EXCEPT !.partitionEpoch = partition.partitionEpoch - (IF affected THEN 0 ELSE 1)]
       IN  /\ status'   = [status EXCEPT ![b] = "running"]
           /\ registry' = [registry EXCEPT ![b] = [brokerEpoch |-> @.brokerEpoch + 1, fenced |-> TRUE]]
           /\ metadata' = IF On("ServeBeforeReplay") THEN metadata ELSE [metadata EXCEPT ![b] = known]
           /\ Decide(next, Unfenced \ {b})
    /\ Step("RegisterBroker", [broker |-> b])
    /\ UNCHANGED <<log, highWatermark, progress, pending, truncating, clientVars, environmentVars>>

\* Whether the broker has replayed the metadata up to its registration.
HasReplayed(b) == metadata[b].leaderEpoch > 0 \/ b \notin metadata[b].replicas

\* The broker's heartbeat shows that it has caught up with the metadata.
UnfenceBroker(b) ==
    /\ Running(b)
    /\ registry[b].fenced
    /\ HasReplayed(b)
    /\ registry' = [registry EXCEPT ![b].fenced = FALSE]
    /\ UNCHANGED <<replicaVars, clientVars, environmentVars>>
    /\ Decide(WithIsr(partition.isr, {}), Unfenced \cup {b})
    /\ Step("UnfenceBroker", [broker |-> b])

\* No heartbeat came within broker.session.timeout.ms. The broker may be dead, or only cut off and still acting as the
\* leader.
FenceBroker(b) ==
    /\ ~registry[b].fenced
    /\ IF Running(b) THEN Spend("fence") ELSE UNCHANGED faults
    /\ registry' = [registry EXCEPT ![b].fenced = TRUE]
    /\ UNCHANGED <<replicaVars, clientVars, lostTail>>
    /\ Decide(WithIsr(IsrWithout(b), {}), Unfenced \ {b})
    /\ Step("FenceBroker", [broker |-> b])

\* A broker requests a controlled shutdown: it leaves the ISR, and another member leads. From now on it is fenced, and
\* may stop at any time.
ControlledShutdown(b) ==
    /\ Running(b)
    /\ ~registry[b].fenced
    /\ Spend("stop")
    /\ registry' = [registry EXCEPT ![b].fenced = TRUE]
    /\ UNCHANGED <<replicaVars, clientVars, lostTail>>
    /\ Decide(WithIsr(IsrWithout(b), {}), Unfenced \ {b})
    /\ Step("ControlledShutdown", [broker |-> b])

-----------------------------------------------------------------------------
\* The proposed members that the controller refuses (KIP-903): fenced brokers, and those whose broker epoch is not the
\* one that the leader saw. The leader has seen none of a member that has not fetched in this leader epoch. Such a
\* member needs no check: by another registration it would have left the ISR, and the proposal would be stale.
Ineligible(proposal) ==
    {b \in proposal.isr :
        \/ registry[b].fenced /\ ~On("AdmitFencedBroker")
        \/ /\ proposal.brokerEpochs[b] \notin {registry[b].brokerEpoch, UnknownBrokerEpoch}
           /\ ~On("AdmitStaleBrokerEpoch")}

\* Whether the proposal has the partition's newest leader epoch and partition epoch.
IsForThisEpoch(proposal) ==
    /\ proposal.leaderEpoch = partition.leaderEpoch
    /\ proposal.partitionEpoch = partition.partitionEpoch

\* The controller accepts the leader's proposal; the leader may be dead by now. A new member that has restarted
\* without its tail meanwhile still lacks it: it leaves the ISR again when it registers.
AlterPartition(l) ==
    /\ pending[l] # None
    /\ partition.leader = l
    /\ IsForThisEpoch(pending[l])
    /\ Ineligible(pending[l]) = {}
    /\ UNCHANGED <<replicaVars, clientVars, registry, faults>>
    /\ lostTail' = lostTail \ {b \in pending[l].isr \ partition.isr : Running(b)}
    /\ Decide(WithIsr(pending[l].isr, {}), Unfenced)
    /\ Step("AlterPartition", [leader |-> l, isr |-> pending[l].isr])

\* Leadership moves to another unfenced member of the ISR without a failure: to the preferred replica, or as an
\* administrator requested.
ElectLeader(b) ==
    /\ partition.leader # b
    /\ b \in Completed(partition).isr \cap Unfenced
    /\ Spend("elect")
    /\ UNCHANGED <<replicaVars, clientVars, registry, lostTail>>
    /\ Publish([Completed(partition) EXCEPT !.leader = b, !.leaderEpoch = @ + 1])
    /\ Step("ElectLeader", [broker |-> b])

\* Unclean election: any unfenced replica leads a partition without a leader, whatever records it lacks.
ElectUncleanLeader(b) ==
    /\ UncleanElection
    /\ partition.leader = None
    /\ b \in Unfenced \cap partition.replicas
    /\ UNCHANGED <<replicaVars, clientVars, registry, environmentVars>>
    /\ Publish(UncleanlyLed(partition, b))
    /\ Step("ElectUncleanLeader", [broker |-> b])

-----------------------------------------------------------------------------
\* An administrator reassigns the partition (KIP-455). Added replicas become replicas at once and have to catch up;
\* removed ones stay until then. Where a new target adds (or removes) no replica, the former adding (or removing) set
\* is kept. There is always a new record, because the order of the replicas may change.
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

\* The reassignment is cancelled, and the former replicas stay. Where only added replicas are in the ISR, that takes
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

\* The topic's min.insync.replicas is set. That clears the ELR, which depends on it (KIP-966). There is a new
\* partition epoch only where that changes the record: the ELR is not empty or, in a partition without a leader, the
\* last known leader is cleared.
ChangeMinIsr(minIsr) ==
    LET set == [partition EXCEPT !.minIsr = minIsr, !.elr = {}]
    IN  /\ Spend("reconfigure")
        /\ UNCHANGED <<registry, replicaVars, clientVars, lostTail>>
        /\ IF partition.elr # {} \/ partition.leader = None THEN Publish(set)
           ELSE /\ partition' = set
                /\ published' = Wanted(published \cup {set}, set, metadata, status)
        /\ Step("ChangeMinIsr", [minIsr |-> minIsr])
=============================================================================
