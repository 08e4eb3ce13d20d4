------------------------------- MODULE MCRules ------------------------------
(***************************************************************************)
(* What single rules promise, apart from what clients see: a rule that is  *)
(* masked by another one, or whose fault takes long to show, breaks here.  *)
(***************************************************************************)
EXTENDS MCReplication

\* Where replicas are added, the partition begins with one of them.
Singles == {{b} : b \in Brokers}

\* A broker may also try to take the log end offset for its checkpoint.
RulesNext == Next \/ \E b \in Brokers, end \in Offsets : Restart(b, end, end)
RulesSpec == Init /\ [][RulesNext]_vars

\* Only a broker that has replayed its registration may be elected.
UnfencedHaveReplayed == \A b \in Unfenced : Running(b) => HasReplayed(b)

\* A proposal is of the leader epoch and the record that its leader acts by.
ProposalsAreCurrent ==
    \A l \in Brokers : Leads(l) /\ pending[l] # None =>
        /\ pending[l].leaderEpoch = metadata[l].leaderEpoch
        /\ pending[l].partitionEpoch = metadata[l].partitionEpoch

\* A reassignment that ended, and was not called off, has all added replicas in sync.
ReassignmentsEndInSync ==
    [][ /\ partition.adding # {} /\ partition'.adding = {}
        /\ partition.adding \subseteq partition'.replicas
        => partition.adding \subseteq partition'.isr
      ]_vars
=============================================================================
