------------------------- MODULE TraceChangingVoters -------------------------
(***************************************************************************)
(* Traces of a metadata quorum whose voters are in its log (KIP-853).      *)
(* Steps and promises are those of LateQuorum, majorities those of         *)
(* ChangingVoters. A node uses the last voter set in its log, committed or *)
(* not. One voter is added or removed at a time, once the former change    *)
(* and a record of the leader's own epoch are committed.                   *)
(*                                                                         *)
(* All nodes are traced, whether they vote or not. Leader epoch and offset *)
(* identify a record. TraceData, a generated module, defines Changes, each *)
(* with the end offset of its record, and FirstVoters, with which the      *)
(* nodes were formatted. The configuration replaces Majority by Unjudged:  *)
(* this module judges majorities (Needs).                                  *)
(***************************************************************************)
EXTENDS TraceQuorum

Unjudged(voters) == TRUE

StartOf(runs, i) == IF i = 1 THEN 0 ELSE runs[i - 1].end
Holds(runs, change) == \E i \in DOMAIN runs :
    runs[i].epoch = change.epoch /\ StartOf(runs, i) < change.end /\ change.end <= runs[i].end

ChangesIn(runs) == {change \in Changes[trace] : Holds(runs, change)}
LastChangeIn(runs) == CHOOSE change \in ChangesIn(runs) : \A other \in ChangesIn(runs) : other.end <= change.end
ChangedBefore(runs) == IF ChangesIn(runs) = {} THEN 0 ELSE LastChangeIn(runs).end
VotersIn(runs) == IF ChangesIn(runs) = {} THEN FirstVoters[trace] ELSE LastChangeIn(runs).voters
VotersOf(v) == VotersIn(log[v])
VotersBefore(v) == IF ChangesIn(log[v]) = {} THEN {} ELSE VotersIn(Prefix(log[v], ChangedBefore(log[v]) - 1))
MayStand(v) == v \in VotersOf(v) \cup VotersBefore(v)

Decide(v, voters) == 2 * Cardinality(voters \cap VotersOf(v)) > Cardinality(VotersOf(v))
EpochIsCommitted(l) == highWatermark[l] > 0 /\ LastEpoch(Prefix(log[l], highWatermark[l])) = epoch[l]

\* A leader that was removed leads until the record that removed it is committed.
MayLead(l) == l \in VotersOf(l) \/ highWatermark[l] < ChangedBefore(log[l])

MayChange(l, voters) ==
    /\ voters # {}
    /\ Cardinality(voters \ VotersOf(l)) + Cardinality(VotersOf(l) \ voters) <= 1
    /\ highWatermark[l] >= ChangedBefore(log[l])
    /\ EpochIsCommitted(l)

\* The conditions of a step in addition to LateQuorum's.
Needs(e) ==
    CASE e.action = "BecomeCandidate"      -> MayStand(e.node) /\ Decide(e.node, votes[e.node])
      [] e.action = "BecomeLeader"         -> MayStand(e.node) /\ Decide(e.node, votes[e.node])
      [] e.action = "AppendRecord"         -> MayLead(e.node)
      [] e.action = "AppendVoters"         -> MayLead(e.node) /\ MayChange(e.node, e.voters)
      [] e.action = "AdvanceHighWatermark" ->
            Decide(e.node, {e.node} \cup {f \in Voters : reached[e.node][f] >= e.highWatermark})
      [] OTHER                             -> TRUE

ChangingStepOf(e) ==
    /\ Needs(e)
    /\ CASE e.action = "AppendVoters"   -> AppendUpTo(e.node, e.leo)
         [] e.action = "LearnFromAnyone" -> \E other \in Voters : LearnNewerEpoch(e.node, other, e.epoch)
         [] OTHER                        -> StepOf(e)

ChangingNext ==
    /\ at <= Len(Traces[trace])
    /\ ChangingStepOf(Event)
    /\ Agrees(Event)
    /\ HistoryAfter(Event.node)
    /\ Guarded => KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED trace

ChangingSpec == TraceInit /\ [][ChangingNext]_traceVars
=============================================================================
