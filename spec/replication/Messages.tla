------------------------------ MODULE Messages ------------------------------
(***************************************************************************)
(* Chapter 9: the message grain. Fetches and AlterPartition are requests   *)
(* and responses on a network that loses, duplicates and reorders          *)
(* messages: a message may arrive at any time after it was sent, any       *)
(* number of times, or never. Each step here is a step of the atomic grain *)
(* with late messages (Late), under that step's name, or changes nothing   *)
(* but messages. Configurations of MCMessages check that refinement.       *)
(*                                                                         *)
(* One case is excluded. The controller judges a proposal once, so no copy *)
(* of a refused proposal may arrive later. The switch                      *)
(* RefusedProposalArrives admits such copies: the controller then adds a   *)
(* member that the leader no longer counts.                                *)
(***************************************************************************)
EXTENDS Late

VARIABLES
    fetches,    \* fetch requests that were sent
    answers,    \* the responses to them
    proposals,  \* AlterPartition requests that may still arrive
    refusals    \* responses to those that named an ineligible member

messageVars == <<fetches, answers, proposals, refusals>>
allVars == <<vars, historyVars, messageVars>>

\* `name` is the step's own name; the state shows the name of the atomic grain's action.
MessageStep(name, action, arguments) == Step(action, arguments)

InitMessages ==
    /\ Init /\ InitHistory
    /\ fetches = {} /\ answers = {} /\ proposals = {} /\ refusals = {}

\* ---- fetching
SendFetch(f) ==
    LET l == metadata[f].leader
        fetch == [from |-> f, to |-> l, leaderEpoch |-> metadata[f].leaderEpoch, end |-> EndOffset(log[f]),
                  lastEpoch |-> LastEpoch(log[f]), brokerEpoch |-> registry[f].brokerEpoch]
    IN  /\ Running(f) /\ l \notin {f, None}
        /\ fetch \notin fetches
        /\ fetches' = fetches \cup {fetch}
        /\ MessageStep("SendFetch", "SendFetch", [follower |-> f, leader |-> l, end |-> fetch.end])
        /\ UNCHANGED <<stateVars, historyVars, answers, proposals, refusals>>

\* The leader receives a fetch of its own leader epoch, and answers it. It learns the follower's progress, unless the
\* logs diverge.
TakeFetch(l, fetch) ==
    LET parts == LogsPart(log[l], fetch.end, fetch.lastEpoch)
        answer == [from |-> l, to |-> fetch.from, leaderEpoch |-> fetch.leaderEpoch, end |-> fetch.end,
                   lastEpoch |-> fetch.lastEpoch, log |-> log[l], highWatermark |-> highWatermark[l]]
        known == [end |-> fetch.end, brokerEpoch |-> fetch.brokerEpoch]
    IN  /\ Leads(l) /\ fetch.to = l /\ fetch.from \in metadata[l].replicas
        /\ fetch.leaderEpoch = metadata[l].leaderEpoch
        /\ ~IsOfFormerIncarnation(l, fetch.from, fetch.brokerEpoch)
        /\ answers' = answers \cup {answer}
        /\ IF parts \/ progress[l][fetch.from] = known
           THEN answer \notin answers /\ UNCHANGED <<stateVars, historyVars>>
           ELSE /\ progress' = [progress EXCEPT ![l][fetch.from] = known]
                /\ UNCHANGED <<controllerVars, status, log, highWatermark, metadata, pending, truncating,
                               clientVars, environmentVars>>
                /\ HistoryAfter
        /\ MessageStep("TakeFetch", IF progress' = progress THEN "TakeFetch" ELSE "AnswerFetch",
                       [leader |-> l, follower |-> fetch.from, end |-> fetch.end])
        /\ UNCHANGED <<fetches, proposals, refusals>>

\* Whether the follower may use the response: it is of its leader epoch, and its log still ends as in the fetch.
Fits(f, answer) ==
    /\ Running(f) /\ answer.to = f
    /\ answer.leaderEpoch = metadata[f].leaderEpoch
    /\ answer.end = EndOffset(log[f]) /\ answer.lastEpoch = LastEpoch(log[f])

\* Whether the leader found that the logs diverge.
IsOfPartedLogs(answer) == LogsPart(answer.log, answer.end, answer.lastEpoch)

TakeDivergence(f, answer) ==
    /\ Fits(f, answer) /\ IsOfPartedLogs(answer)
    /\ LET point == TruncationPoint(log[f], EndOffsetFor(answer.log, answer.lastEpoch))
       IN  /\ log' = [log EXCEPT ![f] = Prefix(@, point)]
           /\ highWatermark' = [highWatermark EXCEPT ![f] = Min(@, point)]
    /\ MessageStep("TakeDivergence", "Truncate", [follower |-> f, leader |-> answer.from, end |-> EndOffset(log'[f])])
    /\ UNCHANGED <<controllerVars, status, roleVars, clientVars, environmentVars, messageVars>>
    /\ HistoryAfter

TakeRecords(f, answer, end) ==
    /\ Fits(f, answer) /\ ~IsOfPartedLogs(answer)
    /\ log' = [log EXCEPT ![f] = Prefix(answer.log, end)]
    /\ MessageStep("TakeRecords", "AppendFetched", [follower |-> f, leader |-> answer.from, end |-> end])
    /\ UNCHANGED <<controllerVars, status, highWatermark, roleVars, clientVars, environmentVars, messageVars>>
    /\ HistoryAfter

TakeHighWatermark(f, answer) ==
    /\ Fits(f, answer) /\ ~IsOfPartedLogs(answer)
    /\ LET adopted == Min(answer.highWatermark, EndOffset(log[f]))
       IN  adopted # highWatermark[f] /\ highWatermark' = [highWatermark EXCEPT ![f] = adopted]
    /\ MessageStep("TakeHighWatermark", "AdoptHighWatermark",
                   [follower |-> f, leader |-> answer.from, highWatermark |-> highWatermark'[f]])
    /\ UNCHANGED <<controllerVars, status, log, roleVars, clientVars, environmentVars, messageVars>>
    /\ HistoryAfter

\* ---- AlterPartition
TakeProposal(l, proposal) ==
    /\ partition.leader = l
    /\ IsForThisEpoch(proposal)
    /\ Ineligible(proposal) = {}
    /\ UNCHANGED <<replicaVars, clientVars, registry, faults>>
    /\ lostTail' = lostTail \ {b \in proposal.isr \ partition.isr : Running(b)}
    /\ Decide(WithIsr(proposal.isr, {}), Unfenced)
    /\ MessageStep("TakeProposal", "AlterPartition", [leader |-> l, isr |-> proposal.isr])
    /\ HistoryAfter
    /\ UNCHANGED messageVars

RefuseProposal(l, proposal) ==
    /\ partition.leader = l
    /\ IsForThisEpoch(proposal)
    /\ Ineligible(proposal) # {}
    /\ refusals' = refusals \cup {[leader |-> l, content |-> proposal]}
    /\ proposals' = IF On("RefusedProposalArrives") THEN proposals ELSE proposals \ {[leader |-> l, content |-> proposal]}
    /\ MessageStep("RefuseProposal", "RefuseProposal", [leader |-> l, isr |-> proposal.isr])
    /\ UNCHANGED <<stateVars, historyVars, fetches, answers>>

\* The leader's pending proposal, as a message.
Sent(l) == [leader |-> l, content |-> pending[l]]

-----------------------------------------------------------------------------
\* All other steps are those of the atomic grain; only a restart always finds the newest high watermark checkpoint.
LocalStep ==
    \/ \E b \in Brokers :
        \/ RegisterBroker(b) \/ UnfenceBroker(b) \/ FenceBroker(b) \/ ControlledShutdown(b)
        \/ ElectLeader(b) \/ ElectUncleanLeader(b)
    \/ \E replicas \in SUBSET Brokers : Reassign(replicas)
    \/ CallOffReassignment
    \/ \E minIsr \in 1..MaxMinIsr : ChangeMinIsr(minIsr)
    \/ \E l \in Brokers : LearnMinIsr(l)
    \/ \E b \in Brokers, r \in published :
        BecomeLeader(b, r) \/ BecomeFollower(b, r) \/ CommitIsr(b, r) \/ GiveUpReplica(b, r)
    \/ \E b \in Brokers : Crash(b) \/ ShutDown(b) \/ Consume(b)
    \/ \E b \in Brokers, end \in Offsets : AdvanceHighWatermark(b, end) \/ Restart(b, end, Min(highWatermark[b], end))
    \/ \E b \in Brokers, acks \in Acks : Produce(b, acks)
    \/ \E b \in Brokers, number \in DOMAIN sent : Retry(b, number) \/ Acknowledge(b, number)

ProposalStep ==
    \/ \E l, f \in Brokers :
        /\ ExpandIsr(l, f) \/ ShrinkIsr(l, f)
        /\ proposals' = proposals \cup {Sent(l)'}
        /\ UNCHANGED refusals
    \/ \E l \in Brokers :
        /\ Sent(l) \in refusals
        /\ RollBackIsr(l)
        /\ refusals' = refusals \ {Sent(l)}
        /\ UNCHANGED proposals

MessageNext ==
    \/ LocalStep /\ HistoryAfter /\ UNCHANGED messageVars
    \/ ProposalStep /\ HistoryAfter /\ UNCHANGED <<fetches, answers>>
    \/ \E f \in Brokers : SendFetch(f)
    \/ \E fetch \in fetches : TakeFetch(fetch.to, fetch)
    \/ \E answer \in answers :
        \/ TakeDivergence(answer.to, answer) \/ TakeHighWatermark(answer.to, answer)
        \/ \E end \in (answer.end + 1)..EndOffset(answer.log) : TakeRecords(answer.to, answer, end)
    \/ \E p \in proposals : TakeProposal(p.leader, p.content) \/ RefuseProposal(p.leader, p.content)

MessageSpec == InitMessages /\ [][MessageNext]_allVars

\* The specification that MessageSpec refines: the atomic grain with late messages.
LateSpec == Init /\ [][Next]_stateVars
=============================================================================
