---------------------------- MODULE TraceGroups ----------------------------
(***************************************************************************)
(* Traces of group coordinators, checked against the specification: every  *)
(* event must be a step that it allows in the state that the events before *)
(* it led to, and must lead to what the coordinator says.  Of the members  *)
(* a trace knows what they say; what they do in between is left open.      *)
(*                                                                         *)
(* Many traces are checked in one run: each is one initial state, its      *)
(* events are the only steps.  A trace that is not accepted ends early.    *)
(* The generated module TraceData defines Traces.                          *)
(***************************************************************************)
EXTENDS Groups, Sequences, TraceData

CONSTANT Guarded    \* is a step that breaks a promise refused as if it did not exist

VARIABLES
    trace,      \* which of the traces
    at          \* the next event's place

traceVars == <<vars, trace, at>>

Event == Traces[trace][at]

TraceInit == trace \in DOMAIN Traces /\ at = 1 /\ Init

\* A member that does not say what it owns may own anything.
Owns(e) == IF e.says THEN e.owned ELSE Partitions

HeartbeatReceived(e) ==
    /\ ReceiveHeartbeat(e.member, e.received, Owns(e))
    /\ owned' = IF e.says THEN [owned EXCEPT ![e.member] = e.owned] ELSE owned
    /\ memberEpoch' = [memberEpoch EXCEPT ![e.member] = e.received]
    /\ UNCHANGED answer

Gone(e) ==
    /\ Remove(e.member)
    /\ owned' = [owned EXCEPT ![e.member] = {}]
    /\ memberEpoch' = [memberEpoch EXCEPT ![e.member] = 0]
    /\ UNCHANGED answer

Raised ==
    /\ joined # {}
    /\ groupEpoch' = groupEpoch + 1
    /\ UNCHANGED <<joined, assignedEpoch, target, given, revoking, epoch, previous, clientVars>>

StepOf(e) ==
    CASE e.action = "JoinGroup"       -> Enter(e.member) /\ UNCHANGED clientVars
      [] e.action = "LeaveGroup"      -> Gone(e)
      [] e.action = "LoseMember"      -> Gone(e)
      [] e.action = "RaiseGroupEpoch" -> Raised
      [] e.action = "UpdateTarget"    -> e.members \subseteq joined /\ Assign(e.target) /\ UNCHANGED clientVars
      [] e.action = "Heartbeat"       -> HeartbeatReceived(e)

\* What the coordinator says of the group, or of the member, after the step.
Agrees(e) ==
    IF e.action = "Heartbeat"
    THEN epoch'[e.member] = e.epoch /\ given'[e.member] = e.assigned /\ revoking'[e.member] = e.revoking
    ELSE groupEpoch' = e.groupEpoch

\* What every state on the way must keep.
KeepsPromises == NoDoubleAssignment /\ OwnedIsGiven /\ MemberEpochIsNotAhead

TraceNext ==
    /\ at <= Len(Traces[trace])
    /\ StepOf(Event)
    /\ Agrees(Event)
    /\ Guarded => KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED <<trace, faults, step>>

\* Said of each trace that is accepted to its end.
Accepted == at > Len(Traces[trace]) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
