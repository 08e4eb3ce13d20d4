------------------------------ MODULE Messages ------------------------------
(***************************************************************************)
(* The message grain.  Fetches and AlterPartition are requests and answers *)
(* on a network that loses, doubles and reorders: a message once sent may  *)
(* be taken at any later time, any number of times, or never.  Every step  *)
(* here is a step of the atomic grain with late messages (Late), or leaves *)
(* its state alone: MCMessages checks that refinement.                     *)
(*                                                                         *)
(* One thing it may not do: a proposal is judged once; no copy of one that *)
(* was refused may arrive later.  The switch RefusedProposalArrives drops  *)
(* that: then a member is admitted that the leader no longer counts.       *)
(***************************************************************************)
EXTENDS Late

VARIABLES
    fetches,    \* fetch requests that were sent
    answers,    \* answers to them
    proposals,  \* AlterPartition requests that may still arrive
    refusals    \* answers to those that named an ineligible member

messageVars == <<fetches, answers, proposals, refusals>>
grainVars == <<vars, historyVars>>
allVars == <<grainVars, messageVars>>

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
        /\ UNCHANGED <<grainVars, answers, proposals, refusals>>

\* The leader learns from the fetch, if it is of its reign and in line, and answers.
TakeFetch(l, fetch) ==
    LET parts == LogsPart(log[l], fetch.end, fetch.lastEpoch)
        answer == [from |-> l, to |-> fetch.from, leaderEpoch |-> fetch.leaderEpoch, end |-> fetch.end,
                   lastEpoch |-> fetch.lastEpoch, log |-> log[l], highWatermark |-> highWatermark[l]]
        told == [end |-> fetch.end, lastEpoch |-> fetch.lastEpoch, brokerEpoch |-> fetch.brokerEpoch]
        known == [end |-> fetch.end, brokerEpoch |-> fetch.brokerEpoch]
    IN  /\ Leads(l) /\ fetch.to = l /\ fetch.from \in metadata[l].replicas
        /\ fetch.leaderEpoch = metadata[l].leaderEpoch \/ On("FetchWithoutFencing")
        /\ answers' = answers \cup {answer}
        /\ IF parts \/ progress[l][fetch.from] = known
           THEN answer \notin answers /\ UNCHANGED grainVars
           ELSE /\ progress' = [progress EXCEPT ![l][fetch.from] = known]
                /\ UNCHANGED <<controllerVars, status, log, highWatermark, metadata, pending, truncating,
                               clientVars, environmentVars, step>>
                /\ HistoryAfter
        /\ UNCHANGED <<fetches, proposals, refusals>>

\* The follower uses an answer of its reign that fits its log as it is now.
TakeAnswer(f, answer) ==
    /\ Running(f) /\ answer.to = f
    /\ answer.leaderEpoch = metadata[f].leaderEpoch
    /\ answer.end = EndOffset(log[f]) /\ answer.lastEpoch = LastEpoch(log[f])
    /\ IF LogsPart(answer.log, answer.end, answer.lastEpoch)
       THEN LET point == TruncationPoint(log[f], EndOffsetFor(answer.log, answer.lastEpoch))
            IN  /\ log' = [log EXCEPT ![f] = Prefix(@, point)]
                /\ highWatermark' = [highWatermark EXCEPT ![f] = Min(@, point)]
       ELSE \/ /\ \E end \in (answer.end + 1)..EndOffset(answer.log) : log' = [log EXCEPT ![f] = Prefix(answer.log, end)]
               /\ UNCHANGED highWatermark
            \/ LET adopted == Min(answer.highWatermark, EndOffset(log[f]))
               IN  /\ adopted # highWatermark[f]
                   /\ highWatermark' = [highWatermark EXCEPT ![f] = adopted]
                   /\ UNCHANGED log
    /\ UNCHANGED <<controllerVars, status, roleVars, clientVars, environmentVars, step, messageVars>>
    /\ HistoryAfter

\* ---- AlterPartition
TakeProposal(l, proposal) ==
    /\ partition.leader = l
    /\ IsForThisEpoch(proposal)
    /\ Ineligible(proposal) = {}
    /\ UNCHANGED <<replicaVars, clientVars, registry, faults, step>>
    /\ lostTail' = lostTail \ {b \in proposal.isr \ partition.isr : Running(b)}
    /\ Decide(WithIsr(proposal.isr, {}), Unfenced)
    /\ HistoryAfter
    /\ UNCHANGED messageVars

RefuseProposal(l, proposal) ==
    /\ partition.leader = l
    /\ IsForThisEpoch(proposal)
    /\ Ineligible(proposal) # {}
    /\ refusals' = refusals \cup {[leader |-> l, content |-> proposal]}
    /\ proposals' = IF On("RefusedProposalArrives") THEN proposals ELSE proposals \ {[leader |-> l, content |-> proposal]}
    /\ UNCHANGED <<grainVars, fetches, answers>>

Sent(l) == [leader |-> l, content |-> pending[l]]

-----------------------------------------------------------------------------
\* Everything else is as in the atomic grain.
LocalStep ==
    \/ \E b \in Brokers : RegisterBroker(b) \/ UnfenceBroker(b) \/ FenceBroker(b) \/ ElectLeader(b)
    \/ \E replicas \in SUBSET Brokers : Reassign(replicas)
    \/ CallOffReassignment
    \/ \E minIsr \in 1..MaxMinIsr : ChangeMinIsr(minIsr)
    \/ \E l \in Brokers : LearnMinIsr(l)
    \/ \E b \in Brokers, r \in published :
        BecomeLeader(b, r) \/ BecomeFollower(b, r) \/ CommitIsr(b, r) \/ GiveUpReplica(b, r)
    \/ \E b \in Brokers : Crash(b)
    \/ \E b \in Brokers, end \in Offsets : AdvanceHighWatermark(b, end) \/ Restart(b, end, Min(highWatermark[b], end))
    \/ \E b \in Brokers, acks \in Acks : Produce(b, acks)
    \/ \E b \in Brokers, number \in DOMAIN sent : Acknowledge(b, number)

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
    \/ \E answer \in answers : TakeAnswer(answer.to, answer)
    \/ \E p \in proposals : TakeProposal(p.leader, p.content) \/ RefuseProposal(p.leader, p.content)

MessageSpec == InitMessages /\ [][MessageNext]_allVars

\* What is to be refined: the atomic grain, with messages as late as they are.
LateSpec == Init /\ [][Next]_vars
=============================================================================
