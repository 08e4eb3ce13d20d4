---------------------------- MODULE MCGroupsRules ----------------------------
(***************************************************************************)
(* Promises of single rules of a group. They show a fault at once where    *)
(* another rule masks it, or where it takes many steps to show.            *)
(***************************************************************************)
EXTENDS Groups

\* Only members of the group have partitions, in the target and otherwise.
OnlyMembersHave ==
    /\ \A p \in Partitions : target[p] \in joined \cup {None}
    /\ \A m \in Members \ joined : Held(m) = {} /\ epoch[m] = 0 /\ previous[m] = 0

\* A target of the present group epoch assigns every partition to a member, and is balanced.
TargetIsBalanced ==
    joined # {} /\ assignedEpoch = groupEpoch => (\A p \in Partitions : target[p] \in joined) /\ Balanced(target, joined)

\* Epochs grow. A member that reaches a new epoch has no partition that the target takes from it.
MembersMoveInOrder ==
    [][ /\ groupEpoch' >= groupEpoch /\ assignedEpoch' >= assignedEpoch
        /\ joined' # joined => groupEpoch' > groupEpoch
        /\ \A m \in joined \cap joined' : epoch'[m] # epoch[m] =>
            /\ epoch'[m] > epoch[m] /\ previous'[m] = epoch[m]
            /\ revoking'[m] = {} /\ given'[m] \subseteq TargetOf(m)
      ]_vars

\* A member with epoch 0 consumes nothing, and no response is on its way to a client that is no member. A member that
\* must revoke partitions has not reached the target's epoch.
MemoryFitsMembership ==
    \A m \in Members :
        /\ memberEpoch[m] >= 0
        /\ memberEpoch[m] = 0 => owned[m] = {}
        /\ m \notin joined => answer[m] = NoAnswer
        /\ revoking[m] # {} => epoch[m] < assignedEpoch

\* Another member becomes a partition's target only in a newer assignment epoch.
TargetsHaveEpochs ==
    [][\A p \in Partitions : target'[p] \notin {target[p], None} => assignedEpoch' > assignedEpoch]_vars

\* The steps that are left once the group does not change and nothing is lost.
Work == UpdateTarget \/ \E m \in Members : Heartbeat(m) \/ TakeAnswer(m) \/ LetGo(m)

\* Liveness as an invariant: where no step of Work is enabled, the members own their targets.
RestIsConverged == ENABLED <<Work>>_stateVars \/ (Converged /\ \A m \in Members \ joined : owned[m] = {} /\ memberEpoch[m] = 0)
=============================================================================
