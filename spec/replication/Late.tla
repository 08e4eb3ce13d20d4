-------------------------------- MODULE Late --------------------------------
(***************************************************************************)
(* Chapter 8: the same protocol, where messages between brokers take time. *)
(* A leader learns the log end offset that a follower had at some moment   *)
(* of the leader epoch. A follower fetches the leader's log and high       *)
(* watermark of some moment of the epoch. A refusal may arrive when its    *)
(* reason no longer holds. The history variables hold those moments; a     *)
(* configuration replaces operators of Replica by the Late ones below.     *)
(*                                                                         *)
(* Within a leader epoch the leader's log and high watermark only grow, so *)
(* the last of each stands for all earlier ones.                           *)
(***************************************************************************)
EXTENDS Replication

VARIABLES
    leaderships,    \* leader epoch -> the leader's longest log and highest high watermark in it
    claims,         \* each follower's fetches that may still arrive, with their leader epochs
    refusable       \* leaders whose pending proposal was ineligible at some moment, and was not accepted since

historyVars == <<leaderships, claims, refusable>>

IsKnown(ledEpoch) == ledEpoch \in DOMAIN leaderships

LateMayFetch(f, l) == Running(f) /\ f # l /\ metadata[f].leader = l /\ IsKnown(metadata[f].leaderEpoch)

LateFetchedLog(f, l) == leaderships[metadata[f].leaderEpoch].log
LateFetchedHighWatermarks(f, l) ==
    IF IsKnown(metadata[f].leaderEpoch) THEN 0..leaderships[metadata[f].leaderEpoch].highWatermark ELSE {}

LateFetchesOf(f, l) == {c.fetch : c \in {claim \in claims[f] : claim.leaderEpoch = metadata[l].leaderEpoch}}

LateWasRefused(l) == l \in refusable

-----------------------------------------------------------------------------
\* The fetch that the follower may send now.
Claim(f) ==
    [leaderEpoch |-> metadata[f].leaderEpoch,
     fetch |-> [end |-> EndOffset(log[f]), lastEpoch |-> LastEpoch(log[f]), brokerEpoch |-> registry[f].brokerEpoch]]

Leadership(l) == [log |-> log[l], highWatermark |-> highWatermark[l]]

Leaders == {b \in Brokers : Leads(b)}
LeaderOf(epoch) == CHOOSE b \in Leaders : metadata[b].leaderEpoch = epoch

InitHistory ==
    /\ leaderships = [e \in {metadata[b].leaderEpoch : b \in Leaders} |-> Leadership(LeaderOf(e))]
    /\ claims = [f \in Brokers |-> IF Running(f) /\ metadata[f].leader \notin {f, None} THEN {Claim(f)} ELSE {}]
    /\ refusable = {}

\* Whether a fetch can be dropped from the history. Either no broker leads its leader epoch or can come to lead it. Or
\* its leader knows a later fetch of the same incarnation, and the follower's last record is of that epoch.
Outlived(f, claim) ==
    \/ \A b \in Brokers :
        metadata[b].leaderEpoch >= claim.leaderEpoch /\ (Leads(b) => metadata[b].leaderEpoch # claim.leaderEpoch)
    \/ \E l \in Leaders :
        /\ metadata[l].leaderEpoch = claim.leaderEpoch
        /\ progress[l][f].brokerEpoch = claim.fetch.brokerEpoch
        /\ progress[l][f].end > claim.fetch.end
        /\ LastEpoch(log[f]) = claim.leaderEpoch

\* Whether this step accepts the leader's proposal. A proposal is judged once, however often it is sent.
WasAccepted(l) ==
    /\ pending[l] # None
    /\ IsForThisEpoch(pending[l])
    /\ partition' # partition
    /\ partition'.isr = pending[l].isr
    /\ partition'.leaderEpoch = partition.leaderEpoch

\* The histories after a step. A leadership is kept while a running broker acts in its leader epoch.
HistoryAfter ==
    /\ leaderships' =
        LET led == {metadata[b].leaderEpoch : b \in Leaders}'
            followed == {metadata[b].leaderEpoch : b \in {c \in Brokers : Running(c)}}'
        IN [e \in led \cup (DOMAIN leaderships \cap followed) |-> IF e \in led THEN Leadership(LeaderOf(e))' ELSE leaderships[e]]
    /\ claims' =
        [f \in Brokers |->
            {c \in claims[f] : ~Outlived(f, c)'}
            \cup (IF Running(f)' /\ metadata'[f].leader \notin {f, None} THEN {Claim(f)'} ELSE {})]
    /\ refusable' =
        {l \in Brokers :
            /\ pending'[l] # None
            /\ ~WasAccepted(l)
            /\ \/ l \in refusable /\ pending'[l] = pending[l]
               \/ (IsForThisEpoch(pending[l]) /\ Ineligible(pending[l]) # {})'}
=============================================================================
