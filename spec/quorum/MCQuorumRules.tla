---------------------------- MODULE MCQuorumRules ----------------------------
(***************************************************************************)
(* What single rules of the quorum promise, apart from what is committed:  *)
(* a rule that another one masks, or whose fault takes long to show,       *)
(* breaks here.                                                            *)
(***************************************************************************)
EXTENDS Quorum

\* A leader or candidate has its own vote; a follower collects none.
RolesFitVotes ==
    \A v \in Voters :
        /\ role[v] \in {"candidate", "leader"} => votedFor[v] = v
        /\ IF role[v] = "follower" THEN votes[v] = {} ELSE v \in votes[v]

\* One vote an epoch.
VotesAreFinal ==
    [][\A v \in Voters : epoch'[v] = epoch[v] /\ votedFor[v] # None => votedFor'[v] = votedFor[v]]_vars

\* What a leader counts of a follower, the follower has.
ReachedIsThere ==
    \A l, f \in Voters : role[l] = "leader" /\ epoch[f] = epoch[l] => reached[l][f] <= EndOffset(log[f])

\* A leader does not truncate, and only a restart forgets what is committed.
NothingIsTakenBack ==
    [][\A v \in Voters :
        /\ role[v] = "leader" /\ role'[v] = "leader" => IsPrefix(log[v], log'[v])
        /\ highWatermark'[v] >= highWatermark[v] \/ crashes' < crashes]_vars

\* What voters do of themselves, once none stands for election and no record comes.
Work ==
    \E v \in Voters :
        \/ BecomeCandidate(v) \/ BecomeLeader(v) \/ AdvanceHighWatermark(v)
        \/ \E w \in Voters : GrantPreVote(v, w) \/ LearnEpoch(v, w) \/ AnswerFetch(v, w) \/ ApplyFetch(v, w)
        \/ \E request \in asked : GrantVote(v, request)

\* When nothing is left to do, the followers of the newest leader have its log, and what is of its epoch is committed.
RestIsReplicated ==
    ENABLED <<Work>>_stateVars \/
    \A l \in Voters : role[l] = "leader" /\ (\A v \in Voters : epoch[v] <= epoch[l]) =>
        /\ \A f \in Voters :
            /\ epoch[f] = epoch[l]
            /\ role[f] = "follower" => log[f] = log[l] /\ highWatermark[f] >= highWatermark[l]
        /\ (\A f \in Voters \ {l} : role[f] = "follower") /\ LastEpoch(log[l]) = epoch[l]
           => highWatermark[l] = EndOffset(log[l])
=============================================================================
