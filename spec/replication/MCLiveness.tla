----------------------------- MODULE MCLiveness -----------------------------
(***************************************************************************)
(* Chapter 10: what must happen once no more faults occur. The steps of    *)
(* recovery and of the protocol are fair, each for each broker. Faults,    *)
(* requests of clients, and requested elections and reassignments need not *)
(* happen. There is no symmetry, no view and no constraint on states, and  *)
(* steps are not recorded.                                                 *)
(***************************************************************************)
EXTENDS MCReplication

Restarts(b) == \E end \in Offsets : Restart(b, end, Min(highWatermark[b], end))

Fairness ==
    /\ \A b \in Brokers :
        /\ WF_vars(RegisterBroker(b))
        /\ WF_vars(UnfenceBroker(b))
        /\ WF_vars(~Running(b) /\ FenceBroker(b))
        /\ WF_vars(AlterPartition(b))
        /\ WF_vars(\E r \in published : BecomeLeader(b, r) \/ BecomeFollower(b, r) \/ CommitIsr(b, r))
        /\ WF_vars(RollBackIsr(b))
        /\ WF_vars(\E end \in Offsets : AdvanceHighWatermark(b, end))
        /\ WF_vars(Restarts(b))
        /\ WF_vars(\E number \in DOMAIN sent : Acknowledge(b, number))
    /\ \A l, f \in Brokers :
        /\ SF_vars(ExpandIsr(l, f))
        /\ WF_vars(Truncate(f, l))
        /\ WF_vars(\E fetch \in FetchesOf(f, l) : AnswerFetch(l, f, fetch))
        /\ WF_vars(\E end \in Offsets : AppendFetched(f, l, end))
        /\ WF_vars(\E fetched \in FetchedHighWatermarks(f, l) : AdoptHighWatermark(f, l, fetched))

FairSpec == Spec /\ Fairness

\* A leader appears, and stays.
LeaderAppears == <>[](\E b \in Brokers : IsCurrentLeader(b) /\ partition.leader = b)

\* The ISR returns to all replicas, for all of them come back.
IsrIsRestored == <>[](partition.isr = Brokers)

\* Every broker acts by the newest leader epoch, and the leader by the newest record.
MetadataConverges ==
    <>[](\A b \in Brokers : Running(b) /\ metadata[b].leaderEpoch = partition.leaderEpoch
                            /\ (Leads(b) => metadata[b] = partition))

\* The high watermark reaches the log end offset, on every replica.
HighWatermarkCatchesUp ==
    <>[](\A b \in Brokers : IsCurrentLeader(b) =>
            /\ highWatermark[b] = EndOffset(log[b])
            /\ \A c \in Brokers : log[c] = log[b] /\ highWatermark[c] = highWatermark[b])

\* A proposal is accepted or dropped, or its leader is replaced.
ProposalsAreResolved == \A b \in Brokers : (Leads(b) /\ pending[b] # None) ~> (~Leads(b) \/ pending[b] = None)

\* Every record in the log of the newest leader is acknowledged.
ProduceEnds ==
    <>[](\A b \in Brokers : IsCurrentLeader(b) => Numbers(log[b]) \subseteq acknowledged)
=============================================================================
