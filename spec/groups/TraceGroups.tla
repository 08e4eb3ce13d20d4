---------------------------- MODULE TraceGroups ----------------------------
(***************************************************************************)
(* Traces of group coordinators, checked against the specification. Every  *)
(* event must be a step that it allows in the state after the events       *)
(* before it, and must lead to the state that the coordinator reported. A  *)
(* trace has the members' requests; what the members do in between is left *)
(* open.                                                                   *)
(*                                                                         *)
(* One run checks many traces: each is one initial state, and its events   *)
(* are the only steps. A trace that is not accepted ends early. TraceData, *)
(* a generated module, defines Traces.                                     *)
(***************************************************************************)
EXTENDS Groups, Sequences, TraceData

CONSTANT Guarded    \* whether a step that breaks a promise is refused, as if it did not exist

VARIABLES
    trace,      \* the number of the trace
    at          \* the number of the next event

traceVars == <<vars, trace, at>>

Event == Traces[trace][at]

TraceInit == trace \in DOMAIN Traces /\ at = 1 /\ Init

\* A member whose heartbeat names no owned partitions may own any.
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

\* Whether the group, or the member, is after the step what the coordinator reported.
Agrees(e) ==
    IF e.action = "Heartbeat"
    THEN epoch'[e.member] = e.epoch /\ given'[e.member] = e.assigned /\ revoking'[e.member] = e.revoking
    ELSE groupEpoch' = e.groupEpoch

\* The promises that every state must keep.
KeepsPromises == NoDoubleAssignment /\ OwnedIsGiven /\ MemberEpochIsNotAhead

TraceNext ==
    /\ at <= Len(Traces[trace])
    /\ StepOf(Event)
    /\ Agrees(Event)
    /\ Guarded => KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED <<trace, faults, step>>

\* Prints each trace that is accepted to its end.
Accepted == at > Len(Traces[trace]) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
