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

\* A member with no epoch consumes nothing, and no answer is on its way to a client that is no member.  What a member is to
\* give back, a target took from it that is newer than its epoch.
MemoryFitsMembership ==
    \A m \in Members :
        /\ memberEpoch[m] >= 0
        /\ memberEpoch[m] = 0 => owned[m] = {}
        /\ m \notin joined => answer[m] = NoAnswer
        /\ revoking[m] # {} => epoch[m] < assignedEpoch

\* A partition is given to another member in a newer group epoch.
TargetsHaveEpochs ==
    [][\A p \in Partitions : target'[p] \notin {target[p], None} => assignedEpoch' > assignedEpoch]_vars

\* What is done once no member comes, goes or is lost.
Work == UpdateTarget \/ \E m \in Members : Heartbeat(m) \/ TakeAnswer(m) \/ LetGo(m)

\* When nothing is left to do, the members own their targets.
RestIsConverged == ENABLED <<Work>>_stateVars \/ (Converged /\ \A m \in Members \ joined : owned[m] = {} /\ memberEpoch[m] = 0)
=============================================================================
