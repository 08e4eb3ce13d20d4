---------------------------- MODULE Replication -----------------------------
(***************************************************************************)
(* Chapter 7: all steps together.                                          *)
(***************************************************************************)
EXTENDS Properties

MaxMinIsr == Cardinality(Brokers)

ControllerStep ==
    \/ \E b \in Brokers :
        \/ RegisterBroker(b) \/ UnfenceBroker(b) \/ FenceBroker(b) \/ ControlledShutdown(b)
        \/ AlterPartition(b) \/ ElectLeader(b) \/ ElectUncleanLeader(b)
    \/ \E replicas \in SUBSET Brokers : Reassign(replicas)
    \/ CallOffReassignment
    \/ \E minIsr \in 1..MaxMinIsr : ChangeMinIsr(minIsr)

Offsets == 0..(2 * Records)

ReplicaStep ==
    \/ \E b \in Brokers, r \in published :
        BecomeLeader(b, r) \/ BecomeFollower(b, r) \/ CommitIsr(b, r) \/ GiveUpReplica(b, r)
    \/ \E b \in Brokers : RollBackIsr(b) \/ LearnMinIsr(b) \/ Crash(b) \/ ShutDown(b)
    \/ \E b \in Brokers, end \in Offsets : AdvanceHighWatermark(b, end)
    \/ \E b \in Brokers, end \in Offsets :
           \E checkpoint \in {0, Min(highWatermark[b], end)} : Restart(b, end, checkpoint)
    \/ \E l, f \in Brokers :
        \/ Truncate(f, l) \/ ExpandIsr(l, f) \/ ShrinkIsr(l, f)
        \/ \E fetch \in FetchesOf(f, l) : AnswerFetch(l, f, fetch)
        \/ \E end \in Offsets : AppendFetched(f, l, end)
        \/ \E fetched \in FetchedHighWatermarks(f, l) : AdoptHighWatermark(f, l, fetched)

ClientStep ==
    \E b \in Brokers :
        \/ \E acks \in Acks : Produce(b, acks)
        \/ \E number \in DOMAIN sent : Retry(b, number) \/ Acknowledge(b, number)
        \/ Consume(b)

Next == ControllerStep \/ ReplicaStep \/ ClientStep

Spec == Init /\ [][Next]_vars
=============================================================================
