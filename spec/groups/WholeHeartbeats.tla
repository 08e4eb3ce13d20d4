--------------------------- MODULE WholeHeartbeats ---------------------------
(***************************************************************************)
(* Behaviours of Groups that a coordinator can be driven through: what one *)
(* heartbeat asks is done at once.  A member that joins gets a target, and *)
(* its request is also its first heartbeat; a new target is made with the  *)
(* next heartbeat of any member; the assignor moves no more than it must.  *)
(* What is drawn at random is drawn from it; all promises are checked      *)
(* without it.                                                             *)
(***************************************************************************)
EXTENDS Groups

Kept(assignment) == Cardinality({p \in Partitions : assignment[p] = target[p]})

AtOnce ==
    /\ step'.action # "RaiseGroupEpoch"
    /\ step.action = "JoinGroup" => step'.action = "UpdateTarget"
    /\ step.action = "UpdateTarget" =>
        step'.action = "Heartbeat" /\ \A m \in joined : epoch[m] = 0 => step'.from = m
    /\ step'.action = "Heartbeat" => assignedEpoch = groupEpoch
    /\ step'.action = "UpdateTarget" =>
        \A assignment \in [Partitions -> joined] : Balanced(assignment, joined) => Kept(assignment) <= Kept(target')

AtOnceSpec == Init /\ [][Next /\ AtOnce]_vars
=============================================================================
