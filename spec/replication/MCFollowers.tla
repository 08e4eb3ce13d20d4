----------------------------- MODULE MCFollowers -----------------------------
(***************************************************************************)
(* A promise about the progress that a leader may learn where a fetch is   *)
(* one step: it counts no broker that does not follow it.                  *)
(***************************************************************************)
EXTENDS MCReplication

\* A leader learns the log end offset of a running broker that follows it in its own leader epoch.
ProgressIsOfFollowers ==
    [][ \A l, f \in Brokers : progress'[l][f].end > progress[l][f].end =>
            Running(f) /\ metadata[f].leader = l /\ metadata[f].leaderEpoch = metadata[l].leaderEpoch ]_vars
=============================================================================
