--------------------------- MODULE WholeHeartbeats ---------------------------
(***************************************************************************)
(* Behaviours of Groups through which a coordinator can be driven:         *)
(* everything that one heartbeat causes happens at once. A join is         *)
(* followed by a new target and by that member's first heartbeat. After    *)
(* any other change a new target comes right before the next heartbeat.    *)
(* The assignor moves as few partitions as it can, and topics do not       *)
(* change. Random behaviours are drawn from this module; the promises are  *)
(* checked without it.                                                     *)
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
