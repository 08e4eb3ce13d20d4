----------------------------- MODULE MCFollowers -----------------------------
(***************************************************************************)
(* What a leader may learn of a follower, where a fetch is one step:       *)
(* no other broker is counted.                                             *)
(***************************************************************************)
EXTENDS MCReplication

\* A leader learns the log end offset of a running broker that follows it in its own leader epoch.
ProgressIsOfFollowers ==
    [][ \A l, f \in Brokers : progress'[l][f].end > progress[l][f].end =>
            Running(f) /\ metadata[f].leader = l /\ metadata[f].leaderEpoch = metadata[l].leaderEpoch ]_vars
=============================================================================
