------------------------------- MODULE Client -------------------------------
(***************************************************************************)
(* Chapter 5: the clients. Record n is the n-th record that the producer   *)
(* sent. With acks=all it is acknowledged once the leader's high watermark *)
(* has passed it. Without a response its outcome is unknown, and an        *)
(* idempotent producer sends the record again, to the present leader.      *)
(***************************************************************************)
EXTENDS Replica

AppendTo(l, number) == log' = [log EXCEPT ![l] = Extend(@, metadata[l].leaderEpoch, number)]

\* A leader with fewer than min.insync.replicas in its ISR refuses acks=all.
Accepts(l, acks) == Leads(l) /\ (acks = "all" => ~UnderMinIsr(l))

\* The number of the last record, for the sequence check (KIP-98): the leader appends the next number, and neither a
\* duplicate nor a number after a gap.
LastNumber(l) == IF log[l] = <<>> THEN 0 ELSE log[l][Len(log[l])].number

\* The leader appends the producer's next record.
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

\* The producer does not know a record's outcome, and sends it again.
Retry(l, number) ==
    /\ Idempotent
    /\ number \in DOMAIN sent \ acknowledged
    /\ Accepts(l, sent[number])
    /\ IF On("ForgetSequences") THEN Len(log[l]) <= Records ELSE LastNumber(l) + 1 = number
    /\ AppendTo(l, number)
    /\ Step("Retry", [leader |-> l, number |-> number])
    /\ UNCHANGED <<controllerVars, status, highWatermark, roleVars, clientVars, environmentVars>>

\* The leader acknowledges a record of acks=all. Records of acks=1 and acks=0 may be lost with the leader, whether
\* they were answered or not: no promise counts them.
Acknowledge(l, number) ==
    /\ Leads(l)
    /\ ~UnderMinIsr(l)
    /\ number \in DOMAIN sent \ acknowledged
    /\ sent[number] = "all"
    /\ number \in Numbers(Prefix(log[l], highWatermark[l]))
    /\ acknowledged' = acknowledged \cup {number}
    /\ Step("Acknowledge", [leader |-> l, number |-> number])
    /\ UNCHANGED <<controllerVars, replicaVars, sent, consumed, environmentVars>>

\* The consumer reads the next record below a replica's high watermark (KIP-392). The replica may be a leader that was
\* replaced and does not know it.
Consume(b) ==
    /\ Running(b)
    /\ metadata[b].leaderEpoch > 0
    /\ Len(consumed) < Min(Reads, highWatermark[b])
    /\ consumed' = Append(consumed, log[b][Len(consumed) + 1])
    /\ Step("Consume", [broker |-> b, offset |-> Len(consumed)])
    /\ UNCHANGED <<controllerVars, replicaVars, sent, acknowledged, environmentVars>>
=============================================================================
