------------------------------- MODULE MCRules ------------------------------
(***************************************************************************)
(* Promises of single rules, beside what clients see. They show a fault at *)
(* once where another rule masks it, or where it takes many steps to show. *)
(***************************************************************************)
EXTENDS MCReplication

\* For reassignments that add replicas: the partition begins with one replica.
Singles == {{b} : b \in Brokers}

\* A restart may also try the log end offset as its checkpoint, which its guard must refuse above the high watermark.
RulesNext == Next \/ \E b \in Brokers, end \in Offsets : Restart(b, end, end)
RulesSpec == Init /\ [][RulesNext]_vars

\* A running broker that is unfenced, and so may be elected, has replayed the metadata up to its registration.
UnfencedHaveReplayed == \A b \in Unfenced : Running(b) => HasReplayed(b)

\* A proposal has the leader epoch and the partition epoch by which its leader acts.
ProposalsAreCurrent ==
    \A l \in Brokers : Leads(l) /\ pending[l] # None =>
        /\ pending[l].leaderEpoch = metadata[l].leaderEpoch
        /\ pending[l].partitionEpoch = metadata[l].partitionEpoch

\* When a reassignment completes, and is not cancelled, all added replicas are in the ISR.
ReassignmentsEndInSync ==
    [][ /\ partition.adding # {} /\ partition'.adding = {}
        /\ partition.adding \subseteq partition'.replicas
        => partition.adding \subseteq partition'.isr
      ]_vars
=============================================================================
