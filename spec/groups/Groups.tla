------------------------------- MODULE Groups -------------------------------
(***************************************************************************)
(* A consumer group of the new protocol (KIP-848). The coordinator holds a *)
(* target assignment, and reconciles each member with it, one heartbeat at *)
(* a time. First a member revokes the partitions that the target takes     *)
(* from it. Once its heartbeat shows that it has, they are assigned to     *)
(* their new owners. No other member waits meanwhile.                      *)
(*                                                                         *)
(* There are three epochs. The group epoch grows with every change of      *)
(* members or topics. The assignment epoch (assignedEpoch) is the group    *)
(* epoch for which the target was computed. A member epoch is the          *)
(* assignment epoch that the member has reached.                           *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Members, Partitions, Changes, Losses, RecordSteps, Bugs

KnownBugs == {"AssignBeforeRevocation"}
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    joined,       \* the members of the group
    groupEpoch,   \* grows with every change of the members or of their topics
    assignedEpoch,\* the group epoch for which the target was computed
    target,       \* partition -> the member that shall own it, or none
    given,        \* coordinator: the partitions that are assigned to each member
    revoking,     \* coordinator: the partitions that each member must revoke, and may still consume
    epoch,        \* coordinator: each member's epoch; 0 for none
    previous,     \* coordinator: each member's epoch before, which a member sends that lost a response
    answer,       \* the heartbeat response on its way to each member: epoch and assignment
    owned,        \* member: the partitions that it consumes
    memberEpoch,  \* member: the epoch that it sends; 0 asks to join
    faults,       \* changes of the group and losses that may still happen
    step

coordinatorVars == <<joined, groupEpoch, assignedEpoch, target, given, revoking, epoch, previous>>
clientVars == <<answer, owned, memberEpoch>>
stateVars == <<coordinatorVars, clientVars, faults>>
vars == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step
Spend(kind) == faults[kind] > 0 /\ faults' = [faults EXCEPT ![kind] = @ - 1]

None == "none"
NoAnswer == [epoch |-> -1, partitions |-> {}]

Init ==
    /\ joined = {}
    /\ groupEpoch = 1
    /\ assignedEpoch = 1
    /\ target = [p \in Partitions |-> None]
    /\ given = [m \in Members |-> {}]
    /\ revoking = [m \in Members |-> {}]
    /\ epoch = [m \in Members |-> 0]
    /\ previous = [m \in Members |-> 0]
    /\ answer = [m \in Members |-> NoAnswer]
    /\ owned = [m \in Members |-> {}]
    /\ memberEpoch = [m \in Members |-> 0]
    /\ faults = [change |-> Changes, loss |-> Losses]
    /\ step = [action |-> "Init"]

TargetOf(m) == {p \in Partitions : target[p] = m}
\* The partitions that a member may consume, by what the coordinator knows.
Held(m) == given[m] \cup revoking[m]
\* Whether no other member may consume the partition.
Free(p, m) == \A other \in Members \ {m} : p \notin Held(other)

\* The assignor's promise: the numbers of partitions of two members differ by at most one.
Balanced(assignment, members) ==
    \A a, b \in members :
        Cardinality({p \in Partitions : assignment[p] = a}) <= Cardinality({p \in Partitions : assignment[p] = b}) + 1

-----------------------------------------------------------------------------
\* What the coordinator does in the steps below; traces of coordinators are checked by these.

Enter(m) ==
    /\ m \notin joined
    /\ joined' = joined \cup {m}
    /\ groupEpoch' = groupEpoch + 1
    /\ epoch' = [epoch EXCEPT ![m] = 0]
    /\ previous' = [previous EXCEPT ![m] = 0]
    /\ UNCHANGED <<assignedEpoch, target, given, revoking>>

\* The member leaves or is fenced. Its partitions are free at once: the coordinator refuses its later commits.
Remove(m) ==
    /\ m \in joined
    /\ joined' = joined \ {m}
    /\ groupEpoch' = groupEpoch + 1
    /\ target' = [p \in Partitions |-> IF target[p] = m THEN None ELSE target[p]]
    /\ given' = [given EXCEPT ![m] = {}]
    /\ revoking' = [revoking EXCEPT ![m] = {}]
    /\ epoch' = [epoch EXCEPT ![m] = 0]
    /\ previous' = [previous EXCEPT ![m] = 0]
    /\ UNCHANGED assignedEpoch

Assign(assignment) ==
    /\ joined # {}
    /\ assignedEpoch < groupEpoch
    /\ target' = assignment
    /\ assignedEpoch' = groupEpoch
    /\ UNCHANGED <<joined, groupEpoch, given, revoking, epoch, previous>>

\* Whether the coordinator accepts a heartbeat with this epoch and these owned partitions. The epoch is the member's.
\* Or it is the one before, if the member lost the response with the newer one and owns nothing outside of its
\* assignment. Or it is 0, from a member that owns nothing.
Admits(m, said, owns) ==
    \/ said = epoch[m]
    \/ said = previous[m] /\ owns \subseteq given[m]
    \/ said = 0 /\ owns = {}

\* Reconcile the member with the target; `owns` are the partitions that it may still consume. While these include
\* partitions that it must revoke, it stays in its epoch.
Reconcile(m, owns) ==
    LET kept    == given[m] \cap TargetOf(m)
        revoked == given[m] \ kept
        gained  == {p \in TargetOf(m) \ kept : Free(p, m) \/ On("AssignBeforeRevocation")}
        isThere == epoch[m] = assignedEpoch /\ revoking[m] = {} /\ given[m] = TargetOf(m)
    IN  IF isThere \/ revoking[m] \cap owns # {}
        THEN UNCHANGED <<given, revoking, epoch, previous>>
        ELSE /\ previous' = [previous EXCEPT ![m] = epoch[m]]
             /\ IF revoked \cap owns # {}
                THEN /\ given' = [given EXCEPT ![m] = kept]
                     /\ revoking' = [revoking EXCEPT ![m] = revoked]
                     /\ UNCHANGED epoch
                ELSE /\ given' = [given EXCEPT ![m] = kept \cup gained]
                     /\ revoking' = [revoking EXCEPT ![m] = {}]
                     /\ epoch' = [epoch EXCEPT ![m] = assignedEpoch]

ReceiveHeartbeat(m, said, owns) ==
    /\ m \in joined
    /\ Admits(m, said, owns)
    /\ Reconcile(m, owns)
    /\ UNCHANGED <<joined, groupEpoch, assignedEpoch, target>>

-----------------------------------------------------------------------------
\* The member joins.  In Kafka the same request also runs the assignor and
\* counts as a heartbeat; these are steps of their own here.
JoinGroup(m) ==
    /\ memberEpoch[m] = 0
    /\ answer[m] = NoAnswer
    /\ Spend("change")
    /\ Enter(m)
    /\ Step("JoinGroup", [from |-> m, to |-> "coordinator"])
    /\ UNCHANGED clientVars

\* The member leaves (a heartbeat with epoch -1).
LeaveGroup(m) ==
    /\ memberEpoch[m] = epoch[m]
    /\ Spend("change")
    /\ Remove(m)
    /\ owned' = [owned EXCEPT ![m] = {}]
    /\ memberEpoch' = [memberEpoch EXCEPT ![m] = 0]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LeaveGroup", [from |-> m, to |-> "coordinator"])

\* The subscribed topics, or their partitions, have changed.
RaiseGroupEpoch ==
    /\ joined # {}
    /\ Spend("change")
    /\ groupEpoch' = groupEpoch + 1
    /\ Step("RaiseGroupEpoch", [from |-> "coordinator"])
    /\ UNCHANGED <<joined, assignedEpoch, target, given, revoking, epoch, previous, clientVars>>

\* The assignor computes a new target; in Kafka that is part of a heartbeat.
UpdateTarget ==
    /\ \E assignment \in [Partitions -> joined] : Balanced(assignment, joined) /\ Assign(assignment)
    /\ Step("UpdateTarget", [from |-> "coordinator"])
    /\ UNCHANGED <<clientVars, faults>>

\* The member sends the partitions that it owns; the coordinator returns those that it shall own. A heartbeat that
\* would change nothing is no step.
Heartbeat(m) ==
    /\ answer[m] = NoAnswer
    /\ ReceiveHeartbeat(m, memberEpoch[m], owned[m])
    /\ answer' = [answer EXCEPT ![m] = [epoch |-> epoch'[m], partitions |-> given'[m]]]
    /\ <<given', revoking', epoch'>> # <<given, revoking, epoch>> \/ given[m] # owned[m] \/ epoch[m] # memberEpoch[m]
    /\ Step("Heartbeat", [from |-> m, to |-> "coordinator", owned |-> owned[m]])
    /\ UNCHANGED <<owned, memberEpoch, faults>>

\* The member receives the response: it revokes partitions that it shall not own, and consumes the others.
TakeAnswer(m) ==
    /\ answer[m] # NoAnswer
    /\ owned' = [owned EXCEPT ![m] = answer[m].partitions]
    /\ memberEpoch' = [memberEpoch EXCEPT ![m] = answer[m].epoch]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("TakeAnswer", [from |-> "coordinator", to |-> m, partitions |-> answer[m].partitions])
    /\ UNCHANGED <<coordinatorVars, faults>>

\* The response is lost; the member is as it was, and sends another heartbeat.
LoseAnswer(m) ==
    /\ answer[m] # NoAnswer
    /\ Spend("loss")
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LoseAnswer", [from |-> "coordinator", to |-> m])
    /\ UNCHANGED <<coordinatorVars, owned, memberEpoch>>

\* The session timeout has passed without a heartbeat. The member may still consume; the coordinator refuses its later
\* commits.
LoseMember(m) ==
    /\ Spend("loss")
    /\ Remove(m)
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LoseMember", [from |-> "coordinator"])
    /\ UNCHANGED <<owned, memberEpoch>>

\* The member learns that it was fenced, and gives up all its partitions.
LetGo(m) ==
    /\ memberEpoch[m] # 0
    /\ m \notin joined \/ ~Admits(m, memberEpoch[m], owned[m])
    /\ answer[m] = NoAnswer
    /\ owned' = [owned EXCEPT ![m] = {}]
    /\ memberEpoch' = [memberEpoch EXCEPT ![m] = 0]
    /\ Step("LetGo", [from |-> m])
    /\ UNCHANGED <<coordinatorVars, answer, faults>>

Next ==
    \/ RaiseGroupEpoch \/ UpdateTarget
    \/ \E m \in Members :
        JoinGroup(m) \/ LeaveGroup(m) \/ Heartbeat(m) \/ TakeAnswer(m) \/ LoseAnswer(m) \/ LoseMember(m) \/ LetGo(m)

Fairness ==
    /\ WF_vars(UpdateTarget)
    /\ \A m \in Members : WF_vars(Heartbeat(m)) /\ WF_vars(TakeAnswer(m)) /\ WF_vars(LetGo(m))

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ Fairness

-----------------------------------------------------------------------------
\* No two members hold the same partition, and no two members of the group consume the same one.
NoDoubleAssignment ==
    \A a, b \in Members : a # b =>
        /\ Held(a) \cap Held(b) = {}
        /\ a \in joined /\ b \in joined => owned[a] \cap owned[b] = {}

\* The coordinator knows of each partition that a member of the group consumes.
OwnedIsGiven == \A m \in joined : owned[m] \subseteq Held(m)

\* No member is ahead of the target, and the target is not ahead of the group.
MemberEpochIsNotAhead == assignedEpoch <= groupEpoch /\ \A m \in joined : epoch[m] <= assignedEpoch

\* Liveness: every member comes to own exactly its target.
Converged == \A m \in joined : owned[m] = TargetOf(m) /\ memberEpoch[m] = groupEpoch
Converges == <>[]Converged

Symmetry == Permutations(Members) \cup Permutations(Partitions)
View == stateVars
=============================================================================
