------------------------------- MODULE Client -------------------------------
(***************************************************************************)
(* Chapter 5: the clients.  Record n is the n-th that the producer made.   *)
(* With acks=all it is acknowledged when the leader's high watermark has   *)
(* passed it; if the answer never comes the outcome is unknown, and an     *)
(* idempotent producer sends the record again, to the leader of then.      *)
(***************************************************************************)
EXTENDS Replica

AppendTo(l, number) == log' = [log EXCEPT ![l] = Extend(@, metadata[l].leaderEpoch, number)]

\* A leader with fewer than min.insync.replicas in its ISR refuses acks=all.
Accepts(l, acks) == Leads(l) /\ (acks = "all" => ~UnderMinIsr(l))

\* The sequence check (KIP-98): the next number is appended, an old one is
\* known already, a gap is refused.
LastNumber(l) == IF log[l] = <<>> THEN 0 ELSE log[l][Len(log[l])].number

Produce(l, acks) ==
    /\ Len(sent) < Records
    /\ Accepts(l, acks)
    /\ Idempotent => LastNumber(l) = Len(sent)
    /\ AppendTo(l, Len(sent) + 1)
    /\ sent' = Append(sent, acks)
    /\ acknowledged' = IF acks = "all" /\ On("AcknowledgeBeforeHighWatermark")
                       THEN acknowledged \cup {Len(sent) + 1} ELSE acknowledged
    /\ Step("Produce", [leader |-> l, number |-> Len(sent) + 1, acks |-> acks])
    /\ UNCHANGED <<controllerVars, status, highWatermark, roleVars, consumed, environmentVars>>

\* The producer does not know what became of the record.
Retry(l, number) ==
    /\ Idempotent
    /\ number \in DOMAIN sent \ acknowledged
    /\ Accepts(l, sent[number])
    /\ IF On("ForgetSequences") THEN Len(log[l]) <= Records ELSE LastNumber(l) + 1 = number
    /\ AppendTo(l, number)
    /\ Step("Retry", [leader |-> l, number |-> number])
    /\ UNCHANGED <<controllerVars, status, highWatermark, roleVars, clientVars, environmentVars>>

\* Only acks=all promises anything; acks=1 and acks=0 are answered at once or
\* never, and may be lost with the leader.
Acknowledge(l, number) ==
    /\ Leads(l)
    /\ ~UnderMinIsr(l)
    /\ number \in DOMAIN sent \ acknowledged
    /\ sent[number] = "all"
    /\ number \in Numbers(Prefix(log[l], highWatermark[l]))
    /\ acknowledged' = acknowledged \cup {number}
    /\ Step("Acknowledge", [leader |-> l, number |-> number])
    /\ UNCHANGED <<controllerVars, replicaVars, sent, consumed, environmentVars>>

\* Any replica serves what it knows to be committed (KIP-392), one who was
\* replaced as leader and does not know it, too.
Consume(b) ==
    /\ Running(b)
    /\ metadata[b].leaderEpoch > 0
    /\ Len(consumed) < Min(Reads, highWatermark[b])
    /\ consumed' = Append(consumed, log[b][Len(consumed) + 1])
    /\ Step("Consume", [broker |-> b, offset |-> Len(consumed)])
    /\ UNCHANGED <<controllerVars, replicaVars, sent, acknowledged, environmentVars>>
=============================================================================
