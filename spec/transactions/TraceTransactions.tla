------------------------- MODULE TraceTransactions -------------------------
(***************************************************************************)
(* Traces of transaction coordinators, and of the leaders of partitions    *)
(* that transactions write to, checked against the specification. Every    *)
(* event must be a step that it allows in the state after the events       *)
(* before it, and must lead to the state that the coordinator reported.    *)
(*                                                                         *)
(* One run checks many traces: each is one initial state, and its events   *)
(* are the only steps. A trace that is not accepted ends early. Of a       *)
(* partition's log only the newest marker is kept, and one write after it. *)
(* TraceData, a generated module, defines Traces.                          *)
(***************************************************************************)
EXTENDS Transactions, TraceData

CONSTANT Guarded    \* whether a step that breaks a promise is refused, as if it did not exist

VARIABLES
    trace,      \* the number of the trace
    at          \* the number of the next event

traceVars == <<vars, trace, at>>

Event == Traces[trace][at]

TraceInit == trace \in DOMAIN Traces /\ at = 1 /\ Init

\* With KIP-890 each EndTxn raises the epoch; for an older client it does not.
End(e) ==
    /\ coordinator.state = "ongoing" \/ (coordinator.state = "empty" /\ e.bumps /\ e.marker = "abort")
    /\ Prepare(e.marker, IF e.bumps THEN coordinator.epoch + 1 ELSE coordinator.epoch)

Begun ==
    \/ coordinator.state = "ongoing" /\ Prepare("abort", coordinator.epoch + 1)
    \/ coordinator.state = "empty" /\ coordinator' = [coordinator EXCEPT !.epoch = @ + 1]

Written(e) ==
    /\ Takes(e.partition, e.epoch)
    /\ log' = [log EXCEPT ![e.partition] =
                  IF Last(e.partition).kind = "data" THEN @
                  ELSE Append(@, [kind |-> "data", epoch |-> e.epoch, transaction |-> 1])]

\* A marker of the decision; or the last marker once more, which ends nothing.
Marked(e) ==
    LET marker == [kind |-> e.marker, epoch |-> e.epoch, transaction |-> 0]
    IN  /\ \/ Last(e.partition) = marker
           \/ /\ coordinator.state = "prepared"
              /\ e.partition \in coordinator.all
              /\ e.marker = coordinator.marker
              /\ e.epoch = coordinator.epoch
        /\ log' = [log EXCEPT ![e.partition] = <<marker>>]

HasReceivedMarker(p) ==
    /\ coordinator.state = "prepared"
    /\ p \in coordinator.partitions
    /\ Last(p) = [kind |-> coordinator.marker, epoch |-> coordinator.epoch, transaction |-> 0]
    /\ HasMarker(p)

StepOf(e) ==
    CASE e.action = "AddPartitions"       -> Admits(e.producerEpoch) /\ Join(e.added) /\ UNCHANGED log
      [] e.action = "EndTransaction"      -> End(e) /\ UNCHANGED log
      [] e.action = "TimeOut"             -> coordinator.state = "ongoing" /\ Begun /\ UNCHANGED log
      [] e.action = "NewSession"          -> Begun /\ UNCHANGED log
      [] e.action = "WriteMarker"         -> HasReceivedMarker(e.partition) /\ UNCHANGED log
      [] e.action = "CompleteTransaction" -> Complete /\ UNCHANGED log
      [] e.action = "TakeOver"            -> Reload /\ UNCHANGED log
      [] e.action = "AppendWrite"         -> Written(e) /\ UNCHANGED coordinator
      [] e.action = "AppendMarker"        -> Marked(e) /\ UNCHANGED coordinator

\* Whether the coordinator's state after the step is what it reported.
Agrees(e) ==
    "state" \in DOMAIN e =>
        /\ coordinator'.state = e.state
        /\ e.decides # "" => coordinator'.marker = e.decides
        /\ coordinator'.epoch = e.producerEpoch
        /\ coordinator'.partitions = e.partitions

\* The promises that every state must keep.
KeepsPromises == NoHangingTransaction /\ ProducerEpochsNeverDecreaseInLog

TraceNext ==
    /\ at <= Len(Traces[trace])
    /\ StepOf(Event)
    /\ Agrees(Event)
    /\ Guarded => KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED <<trace, producer, network, decided, faults, step>>

\* Prints each trace that is accepted to its end.
Accepted == at > Len(Traces[trace]) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
