--------------------------- MODULE MCQuorumParted ---------------------------
(***************************************************************************)
(* Logs that diverge after a record that they share. In a small model a    *)
(* log has one record, and a truncation leaves none; it takes two records  *)
(* to show what a truncation must keep. So this model begins in the        *)
(* middle: a leader was replaced, and has not learned of it.               *)
(***************************************************************************)
EXTENDS MCQuorumRules

\* The former leader has two records, of which the present leader has the first; the third voter has neither.
Parted ==
    \E former, present, third \in Voters :
        /\ Cardinality({former, present, third}) = 3
        /\ epoch = [v \in Voters |-> IF v = former THEN 1 ELSE 2]
        /\ votedFor = [v \in Voters |-> IF v = former THEN former ELSE present]
        /\ log = [v \in Voters |-> IF v = former THEN <<1, 1>> ELSE IF v = present THEN <<1>> ELSE <<>>]
        /\ role = [v \in Voters |-> IF v = third THEN "follower" ELSE "leader"]
        /\ votes = [v \in Voters |->
               IF v = former THEN {former, present} ELSE IF v = present THEN {present, third} ELSE {}]
        /\ asked = {[candidate |-> former, epoch |-> 1, lastEpoch |-> 0, end |-> 0],
                    [candidate |-> present, epoch |-> 2, lastEpoch |-> 1, end |-> 1]}
        /\ highWatermark = [v \in Voters |-> 0]
        /\ reached = [v \in Voters |-> [w \in Voters |-> 0]]

InitParted == Parted /\ crashes = Crashes /\ step = [action |-> "Init"]
SpecParted == InitParted /\ [][Next]_vars

\* A follower removes no record that the leader of its epoch has.
SharedRecordsStay ==
    [][\A f, l \in Voters : role[l] = "leader" /\ epoch[l] = epoch[f] =>
        \A end \in 1..EndOffset(log[f]) :
            IsPrefix(Prefix(log[f], end), log[l]) => IsPrefix(Prefix(log[f], end), log'[f])]_vars

\* A leader counts only fetches of its own epoch, and its high watermark rises only to the end of a record of that
\* epoch.
LeadersCountTheirEpoch ==
    [][\A l, f \in Voters :
        /\ reached'[l][f] > reached[l][f] => role[l] = "leader" /\ epoch[f] = epoch[l]
        /\ role[l] = "leader" /\ highWatermark'[l] > highWatermark[l] =>
               LastEpoch(Prefix(log[l], highWatermark'[l])) = epoch[l]]_vars
=============================================================================
