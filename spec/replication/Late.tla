-------------------------------- MODULE Late --------------------------------
(***************************************************************************)
(* What passes between brokers takes time.  A leader learns how far a      *)
(* follower was at some moment of the reign; a follower hears the leader's *)
(* log and high watermark as they were at some moment of the reign; a      *)
(* refusal arrives when the reason for it may be gone.  Histories of the   *)
(* reigns say what those moments were; a configuration puts the operators  *)
(* below in the place of Replica's.                                        *)
(*                                                                         *)
(* Within a reign the leader's log and high watermark only grow, so that   *)
(* the last of each stands for all.                                        *)
(***************************************************************************)
EXTENDS Replication

VARIABLES
    reigns,     \* leader epoch -> the leader's log and high watermark, as far as they came
    claims,     \* what each follower may have told in its fetches
    refusable   \* leaders whose pending proposal was ineligible at some moment, and not accepted since

historyVars == <<reigns, claims, refusable>>

IsKnown(reign) == reign \in DOMAIN reigns

LateHears(f, l) == Running(f) /\ f # l /\ metadata[f].leader = l /\ IsKnown(metadata[f].leaderEpoch)

LateHeardLog(f, l) == reigns[metadata[f].leaderEpoch].log
LateHeardHighWatermarks(f, l) ==
    IF IsKnown(metadata[f].leaderEpoch) THEN 0..reigns[metadata[f].leaderEpoch].highWatermark ELSE {}

LateToldBy(f, l) == {c.told : c \in {claim \in claims[f] : claim.leaderEpoch = metadata[l].leaderEpoch}}

LateWasRefused(l) == l \in refusable

-----------------------------------------------------------------------------
Claim(f) ==
    [leaderEpoch |-> metadata[f].leaderEpoch,
     told |-> [end |-> EndOffset(log[f]), lastEpoch |-> LastEpoch(log[f]), brokerEpoch |-> registry[f].brokerEpoch]]

Reign(l) == [log |-> log[l], highWatermark |-> highWatermark[l]]

Leaders == {b \in Brokers : Leads(b)}
ReignOf(epoch) == CHOOSE b \in Leaders : metadata[b].leaderEpoch = epoch

InitHistory ==
    /\ reigns = [e \in {metadata[b].leaderEpoch : b \in Leaders} |-> Reign(ReignOf(e))]
    /\ claims = [f \in Brokers |-> IF Running(f) /\ metadata[f].leader \notin {f, None} THEN {Claim(f)} ELSE {}]
    /\ refusable = {}

\* A reign is remembered while somebody follows it; a claim while somebody
\* leads its reign, or may come to it, who replays late, and while its leader
\* has not been told more in the same life.
Outlived(f, claim) ==
    \/ \A b \in Brokers :
        metadata[b].leaderEpoch >= claim.leaderEpoch /\ (Leads(b) => metadata[b].leaderEpoch # claim.leaderEpoch)
    \/ \E l \in Leaders :
        /\ metadata[l].leaderEpoch = claim.leaderEpoch
        /\ progress[l][f].brokerEpoch = claim.told.brokerEpoch
        /\ progress[l][f].end > claim.told.end
        /\ LastEpoch(log[f]) = claim.leaderEpoch

\* A proposal is judged once: refused or accepted, whatever is asked again.
WasAccepted(l) ==
    /\ pending[l] # None
    /\ IsForThisEpoch(pending[l])
    /\ partition' # partition
    /\ partition'.isr = pending[l].isr
    /\ partition'.leaderEpoch = partition.leaderEpoch

HistoryAfter ==
    /\ reigns' =
        LET led == {metadata[b].leaderEpoch : b \in Leaders}'
            followed == {metadata[b].leaderEpoch : b \in {c \in Brokers : Running(c)}}'
        IN [e \in led \cup (DOMAIN reigns \cap followed) |-> IF e \in led THEN Reign(ReignOf(e))' ELSE reigns[e]]
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
