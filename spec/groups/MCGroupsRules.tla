---------------------------- MODULE MCGroupsRules ----------------------------
(***************************************************************************)
(* What single rules of a group promise: a rule that another one masks, or *)
(* whose fault takes long to show, breaks here.                            *)
(***************************************************************************)
EXTENDS Groups

\* Only members have a target or partitions.
OnlyMembersHave ==
    /\ \A p \in Partitions : target[p] \in joined \cup {None}
    /\ \A m \in Members \ joined : Held(m) = {} /\ epoch[m] = 0 /\ previous[m] = 0

\* A target gives every partition to a member, as evenly as can be.
TargetIsBalanced ==
    joined # {} /\ assignedEpoch = groupEpoch => (\A p \in Partitions : target[p] \in joined) /\ Balanced(target, joined)

\* Epochs grow; a member comes to the next one without what the target takes from it.
MembersMoveInOrder ==
    [][ /\ groupEpoch' >= groupEpoch /\ assignedEpoch' >= assignedEpoch
        /\ joined' # joined => groupEpoch' > groupEpoch
        /\ \A m \in joined \cap joined' : epoch'[m] # epoch[m] =>
            /\ epoch'[m] > epoch[m] /\ previous'[m] = epoch[m]
            /\ revoking'[m] = {} /\ given'[m] \subseteq TargetOf(m)
      ]_vars

\* What is done once no member comes, goes or is lost.
Work == UpdateTarget \/ \E m \in Members : Heartbeat(m) \/ TakeAnswer(m) \/ LetGo(m)

\* When nothing is left to do, the members own their targets.
RestIsConverged == ENABLED <<Work>>_stateVars \/ (Converged /\ \A m \in Members \ joined : owned[m] = {} /\ memberEpoch[m] = 0)
=============================================================================
