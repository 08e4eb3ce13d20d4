------------------------------- MODULE Groups -------------------------------
(***************************************************************************)
(* A consumer group of the new protocol (KIP-848).  The coordinator holds  *)
(* a target assignment; members are led to it one heartbeat at a time:     *)
(* first a member gives back what the target takes from it, then, once it  *)
(* has said that it did, the partitions are given to their new owners.     *)
(* Nobody else waits meanwhile.                                            *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Members, Partitions, Changes, Losses, RecordSteps, Bugs

KnownBugs == {"AssignBeforeRevocation"}
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    joined,     \* the members of the group
    groupEpoch, \* grows with every change of the target
    target,     \* partition -> the member that is to have it, or none
    given,      \* coordinator: what each member has been given and not given back
    epoch,      \* coordinator: each member's epoch; 0 for none
    answer,     \* the heartbeat answer on its way to each member: what it is to own
    owned,      \* member: what it consumes
    memberEpoch,\* member: the epoch that it believes in
    faults,     \* changes of the target and lost sessions that may still happen
    step

stateVars == <<joined, groupEpoch, target, given, epoch, answer, owned, memberEpoch, faults>>
vars == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step

Nobody == "nobody"
NoAnswer == [epoch |-> -1, partitions |-> {}]

Init ==
    /\ joined = {}
    /\ groupEpoch = 0
    /\ target = [p \in Partitions |-> Nobody]
    /\ given = [m \in Members |-> {}]
    /\ epoch = [m \in Members |-> 0]
    /\ answer = [m \in Members |-> NoAnswer]
    /\ owned = [m \in Members |-> {}]
    /\ memberEpoch = [m \in Members |-> 0]
    /\ faults = [change |-> Changes, loss |-> Losses]
    /\ step = [action |-> "Init"]

TargetOf(m) == {p \in Partitions : target[p] = m}
Free(p, m) == \A other \in Members \ {m} : p \notin given[other]

\* As even as can be: the assignor's promise.
Balanced(assignment, members) ==
    \A a, b \in members :
        Cardinality({p \in Partitions : assignment[p] = a}) <= Cardinality({p \in Partitions : assignment[p] = b}) + 1

Retarget(members) ==
    /\ groupEpoch' = groupEpoch + 1
    /\ IF members = {} THEN target' = [p \in Partitions |-> Nobody]
       ELSE \E assignment \in [Partitions -> members] :
                Balanced(assignment, members) /\ target' = assignment

-----------------------------------------------------------------------------
\* The member introduces itself; the assignor runs.
JoinGroup(m) ==
    /\ m \notin joined
    /\ memberEpoch[m] = 0
    /\ faults.change > 0
    /\ faults' = [faults EXCEPT !.change = @ - 1]
    /\ joined' = joined \cup {m}
    /\ Retarget(joined')
    /\ epoch' = [epoch EXCEPT ![m] = groupEpoch']
    /\ answer' = [answer EXCEPT ![m] = [epoch |-> groupEpoch', partitions |-> {}]]
    /\ Step("JoinGroup", [from |-> m, to |-> "coordinator"])
    /\ UNCHANGED <<given, owned, memberEpoch>>

LeaveGroup(m) ==
    /\ m \in joined
    /\ memberEpoch[m] = epoch[m]
    /\ faults.change > 0
    /\ faults' = [faults EXCEPT !.change = @ - 1]
    /\ joined' = joined \ {m}
    /\ Retarget(joined')
    /\ owned' = [owned EXCEPT ![m] = {}]
    /\ given' = [given EXCEPT ![m] = {}]
    /\ memberEpoch' = [memberEpoch EXCEPT ![m] = 0]
    /\ epoch' = [epoch EXCEPT ![m] = 0]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LeaveGroup", [from |-> m, to |-> "coordinator"])

\* A member says what it owns; the coordinator answers what it is to own.
\* An answer that only moves the member's epoch must not get lost here: how a
\* member is brought back that is one epoch behind is left out.
Heartbeat(m) ==
    /\ m \in joined
    /\ memberEpoch[m] = epoch[m]
    /\ answer[m] = NoAnswer
    /\ LET returned == given[m] \ owned[m]
           \* What the member has not had a chance to own yet is not returned.
           kept == IF given[m] \subseteq TargetOf(m) THEN given[m] ELSE given[m] \ (returned \ TargetOf(m))
           toRevoke == kept \ TargetOf(m)
           addable == {p \in TargetOf(m) : Free(p, m) \/ On("AssignBeforeRevocation")}
           \* One that must give back is given nothing new before it has done so.
           next == IF toRevoke # {} THEN kept ELSE addable
       IN  /\ given' = [given EXCEPT ![m] = next]
           /\ epoch' = [epoch EXCEPT ![m] = IF toRevoke = {} THEN groupEpoch ELSE @]
           /\ answer' = [answer EXCEPT ![m] = [epoch |-> epoch'[m], partitions |-> next \cap TargetOf(m)]]
           /\ given'[m] # given[m] \/ epoch'[m] # epoch[m] \/ answer'[m].partitions # owned[m]
           /\ Step("Heartbeat", [from |-> m, to |-> "coordinator", owned |-> owned[m]])
    /\ UNCHANGED <<joined, groupEpoch, target, owned, memberEpoch, faults>>

\* The member takes the answer: it stops what it is not to own, and begins the rest.
TakeAnswer(m) ==
    /\ answer[m] # NoAnswer
    /\ owned' = [owned EXCEPT ![m] = answer[m].partitions]
    /\ memberEpoch' = [memberEpoch EXCEPT ![m] = answer[m].epoch]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("TakeAnswer", [from |-> "coordinator", to |-> m, partitions |-> answer[m].partitions])
    /\ UNCHANGED <<joined, groupEpoch, target, given, epoch, faults>>

\* The answer is lost; the member goes on as it was, and asks again.
LoseAnswer(m) ==
    /\ answer[m] # NoAnswer
    /\ memberEpoch[m] # 0
    /\ faults.loss > 0
    /\ faults' = [faults EXCEPT !.loss = @ - 1]
    /\ memberEpoch[m] = answer[m].epoch
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LoseAnswer", [from |-> "coordinator", to |-> m])
    /\ UNCHANGED <<joined, groupEpoch, target, given, epoch, owned, memberEpoch>>

\* No heartbeat came in time.  The member may still be at work; whatever it
\* commits from now on is refused.
LoseMember(m) ==
    /\ m \in joined
    /\ faults.loss > 0
    /\ faults' = [faults EXCEPT !.loss = @ - 1]
    /\ joined' = joined \ {m}
    /\ Retarget(joined')
    /\ given' = [given EXCEPT ![m] = {}]
    /\ epoch' = [epoch EXCEPT ![m] = 0]
    /\ answer' = [answer EXCEPT ![m] = NoAnswer]
    /\ Step("LoseMember", [from |-> "coordinator"])
    /\ UNCHANGED <<owned, memberEpoch>>

\* It hears that it was fenced, and lets go of everything.
LetGo(m) ==
    /\ m \notin joined
    /\ memberEpoch[m] # 0
    /\ owned' = [owned EXCEPT ![m] = {}]
    /\ memberEpoch' = [memberEpoch EXCEPT ![m] = 0]
    /\ Step("LetGo", [from |-> m])
    /\ UNCHANGED <<joined, groupEpoch, target, given, epoch, answer, faults>>

Next ==
    \E m \in Members :
        JoinGroup(m) \/ LeaveGroup(m) \/ Heartbeat(m) \/ TakeAnswer(m) \/ LoseAnswer(m) \/ LoseMember(m) \/ LetGo(m)

Fairness == \A m \in Members : WF_vars(Heartbeat(m)) /\ WF_vars(TakeAnswer(m)) /\ WF_vars(LetGo(m))

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ Fairness

-----------------------------------------------------------------------------
\* No partition is with two members of the group.
NoDoubleAssignment ==
    \A a, b \in Members : a # b =>
        /\ given[a] \cap given[b] = {}
        /\ a \in joined /\ b \in joined => owned[a] \cap owned[b] = {}

\* What a member of the group consumes is known to the coordinator.
OwnedIsGiven == \A m \in joined : owned[m] \subseteq given[m]

MemberEpochIsNotAhead == \A m \in joined : epoch[m] <= groupEpoch

\* Liveness: every member comes to own exactly its target.
Converged == \A m \in joined : owned[m] = TargetOf(m) /\ memberEpoch[m] = groupEpoch
Converges == <>[]Converged

Symmetry == Permutations(Members) \cup Permutations(Partitions)
View == stateVars
=============================================================================
