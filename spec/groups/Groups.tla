------------------------------- MODULE Groups -------------------------------
(***************************************************************************)
(* A consumer group of the new protocol (KIP-848).  The coordinator holds  *)
(* a target assignment; members are led to it one heartbeat at a time:     *)
(* first a member gives back what the target takes from it, then, once it  *)
(* has said that it did, the partitions are given to their new owners.     *)
(* No other member waits meanwhile.                                        *)
(*                                                                         *)
(* Three epochs order it.  The group epoch grows with every change of      *)
(* members or topics; the assigned epoch is the group epoch for which the  *)
(* target was made; a member's epoch is the assigned epoch to which it has *)
(* come.                                                                   *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Members, Partitions, Changes, Losses, RecordSteps, Bugs

KnownBugs == {"AssignBeforeRevocation"}
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    joined,       \* the members of the group
    groupEpoch,   \* grows with every change of who or what is to be assigned
    assignedEpoch,\* the group epoch for which the target was made
    target,       \* partition -> the member that is to have it, or none
    given,        \* coordinator: what each member has been given
    revoking,     \* coordinator: what each member is asked to give back, and may still consume
    epoch,        \* coordinator: each member's epoch; 0 for none
    previous,     \* coordinator: the epoch before, by which a member is known that has lost an answer
    answer,       \* the heartbeat answer on its way to each member: what it is to own
    owned,        \* member: what it consumes
    memberEpoch,  \* member: the epoch that it believes in; 0 asks to be let in
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
Held(m) == given[m] \cup revoking[m]
Free(p, m) == \A other \in Members \ {m} : p \notin Held(other)

\* As even as can be: the assignor's promise.
Balanced(assignment, members) ==
    \A a, b \in members :
        Cardinality({p \in Partitions : assignment[p] = a}) <= Cardinality({p \in Partitions : assignment[p] = b}) + 1

-----------------------------------------------------------------------------
\* The coordinator's side of it.

Enter(m) ==
    /\ m \notin joined
    /\ joined' = joined \cup {m}
    /\ groupEpoch' = groupEpoch + 1
    /\ epoch' = [epoch EXCEPT ![m] = 0]
    /\ previous' = [previous EXCEPT ![m] = 0]
    /\ UNCHANGED <<assignedEpoch, target, given, revoking>>

\* What the member had is free at once: whatever it commits from now on is refused.
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

\* A member says its epoch; or the one before, if it has lost the answer that
\* moved it and owns nothing that was taken from it; or that it begins again.
Admits(m, said, owns) ==
    \/ said = epoch[m]
    \/ said = previous[m] /\ owns \subseteq given[m]
    \/ said = 0 /\ owns = {}

\* The member may still consume `owns`.  What it still has to give back it must
\* give back first, and until then it stays in its epoch.
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

LeaveGroup(m) ==
    /\ memberEpoch[m] = epoch[m]
    /\ Spend("change")
    /\ Remove(m)
    /\ owned' = [owned EXCEPT ![m] = {}]
    /\ memberEpoch' = [memberEpoch EXCEPT ![m] = 0]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LeaveGroup", [from |-> m, to |-> "coordinator"])

\* The topics are others than before.
RaiseGroupEpoch ==
    /\ joined # {}
    /\ Spend("change")
    /\ groupEpoch' = groupEpoch + 1
    /\ Step("RaiseGroupEpoch", [from |-> "coordinator"])
    /\ UNCHANGED <<joined, assignedEpoch, target, given, revoking, epoch, previous, clientVars>>

\* The assignor runs, in Kafka within a heartbeat.
UpdateTarget ==
    /\ \E assignment \in [Partitions -> joined] : Balanced(assignment, joined) /\ Assign(assignment)
    /\ Step("UpdateTarget", [from |-> "coordinator"])
    /\ UNCHANGED <<clientVars, faults>>

\* A member says what it owns; the coordinator answers what it is to own.
Heartbeat(m) ==
    /\ answer[m] = NoAnswer
    /\ ReceiveHeartbeat(m, memberEpoch[m], owned[m])
    /\ answer' = [answer EXCEPT ![m] = [epoch |-> epoch'[m], partitions |-> given'[m]]]
    /\ <<given', revoking', epoch'>> # <<given, revoking, epoch>> \/ given[m] # owned[m] \/ epoch[m] # memberEpoch[m]
    /\ Step("Heartbeat", [from |-> m, to |-> "coordinator", owned |-> owned[m]])
    /\ UNCHANGED <<owned, memberEpoch, faults>>

\* The member takes the answer: it stops what it is not to own, and begins the rest.
TakeAnswer(m) ==
    /\ answer[m] # NoAnswer
    /\ owned' = [owned EXCEPT ![m] = answer[m].partitions]
    /\ memberEpoch' = [memberEpoch EXCEPT ![m] = answer[m].epoch]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("TakeAnswer", [from |-> "coordinator", to |-> m, partitions |-> answer[m].partitions])
    /\ UNCHANGED <<coordinatorVars, faults>>

\* The answer is lost; the member goes on as it was, and asks again.
LoseAnswer(m) ==
    /\ answer[m] # NoAnswer
    /\ Spend("loss")
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LoseAnswer", [from |-> "coordinator", to |-> m])
    /\ UNCHANGED <<coordinatorVars, owned, memberEpoch>>

\* No heartbeat came in time.  The member may still be at work; whatever it
\* commits from now on is refused.
LoseMember(m) ==
    /\ Spend("loss")
    /\ Remove(m)
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LoseMember", [from |-> "coordinator"])
    /\ UNCHANGED <<owned, memberEpoch>>

\* The member learns that it was fenced, and lets go of everything.
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
\* No partition is with two members of the group.
NoDoubleAssignment ==
    \A a, b \in Members : a # b =>
        /\ Held(a) \cap Held(b) = {}
        /\ a \in joined /\ b \in joined => owned[a] \cap owned[b] = {}

\* What a member of the group consumes is known to the coordinator.
OwnedIsGiven == \A m \in joined : owned[m] \subseteq Held(m)

MemberEpochIsNotAhead == assignedEpoch <= groupEpoch /\ \A m \in joined : epoch[m] <= assignedEpoch

\* Liveness: every member comes to own exactly its target.
Converged == \A m \in joined : owned[m] = TargetOf(m) /\ memberEpoch[m] = groupEpoch
Converges == <>[]Converged

Symmetry == Permutations(Members) \cup Permutations(Partitions)
View == stateVars
=============================================================================
