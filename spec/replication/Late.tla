-------------------------------- MODULE Late --------------------------------
(***************************************************************************)
(* What passes between brokers takes time.  A leader learns how far a      *)
(* follower was at some moment of the leader epoch; a follower fetches the *)
(* leader's log and high watermark as they were at some moment of the      *)
(* epoch; a refusal arrives when the reason for it may be gone.  Histories *)
(* of the leaderships say what those moments were; a configuration puts    *)
(* the operators below in the place of Replica's.                          *)
(*                                                                         *)
(* Within an epoch the leader's log and high watermark only grow, so that  *)
(* the last of each stands for all.                                        *)
(***************************************************************************)
EXTENDS Replication

VARIABLES
    leaderships,    \* leader epoch -> the leader's log and high watermark, as far as they came
    claims,         \* what each follower may have claimed in its fetches
    refusable       \* leaders whose pending proposal was ineligible at some moment, and not accepted since

historyVars == <<leaderships, claims, refusable>>

IsKnown(ledEpoch) == ledEpoch \in DOMAIN leaderships

LateMayFetch(f, l) == Running(f) /\ f # l /\ metadata[f].leader = l /\ IsKnown(metadata[f].leaderEpoch)

LateFetchedLog(f, l) == leaderships[metadata[f].leaderEpoch].log
LateFetchedHighWatermarks(f, l) ==
    IF IsKnown(metadata[f].leaderEpoch) THEN 0..leaderships[metadata[f].leaderEpoch].highWatermark ELSE {}

LateFetchesOf(f, l) == {c.fetch : c \in {claim \in claims[f] : claim.leaderEpoch = metadata[l].leaderEpoch}}

LateWasRefused(l) == l \in refusable

-----------------------------------------------------------------------------
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

\* A leadership is remembered while a broker follows it; a claim while a
\* broker leads its epoch, or replays late and may still come to it, and while
\* no later claim of the same incarnation has reached its leader.
Outlived(f, claim) ==
    \/ \A b \in Brokers :
        metadata[b].leaderEpoch >= claim.leaderEpoch /\ (Leads(b) => metadata[b].leaderEpoch # claim.leaderEpoch)
    \/ \E l \in Leaders :
        /\ metadata[l].leaderEpoch = claim.leaderEpoch
        /\ progress[l][f].brokerEpoch = claim.fetch.brokerEpoch
        /\ progress[l][f].end > claim.fetch.end
        /\ LastEpoch(log[f]) = claim.leaderEpoch

\* A proposal is judged once: refused or accepted, whatever is asked again.
WasAccepted(l) ==
    /\ pending[l] # None
    /\ IsForThisEpoch(pending[l])
    /\ partition' # partition
    /\ partition'.isr = pending[l].isr
    /\ partition'.leaderEpoch = partition.leaderEpoch

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
