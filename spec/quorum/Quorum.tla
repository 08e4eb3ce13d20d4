------------------------------- MODULE Quorum -------------------------------
(***************************************************************************)
(* The metadata quorum: Raft as KRaft does it (KIP-595, KIP-996). Voters   *)
(* elect a leader for an epoch. The others fetch from it; a voter's fetch  *)
(* offset is its log end offset. A record is committed once a majority has *)
(* it and a record of the leader's own epoch that is not before it. The    *)
(* controller acts by the committed records: this module shows that the    *)
(* one controller of replication/Controller.tla exists.                    *)
(*                                                                         *)
(* Epoch, vote and log survive a crash; all other state is lost. A vote    *)
(* request is a message: a voter answers it in a step of its own, by the   *)
(* log that the candidate had when it asked. All other steps read the      *)
(* other voter's present state; in LateQuorum they may read an earlier     *)
(* one.                                                                    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Voters, None, Records, Epochs, Crashes, RecordSteps, Bugs

KnownBugs == {"ForgetVote", "VoteForShorterLog", "CommitEarlierEpoch", "FetchAcrossEpochs"}
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    epoch, votedFor, log,       \* each voter's, on disk
    role,                       \* "follower", "prospective", "candidate", "leader"
    votes,                      \* the voters that granted it a vote, or a pre-vote, in its present round
    asked,                      \* the vote requests of candidates, with the ends of their logs at that time
    highWatermark,
    reached,                    \* as a leader: each voter's log end offset at its last fetch in this epoch
    crashes,
    step

stateVars == <<epoch, votedFor, log, role, votes, asked, highWatermark, reached, crashes>>
vars == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step

\* A log is the sequence of its records' epochs. Traces have another representation, and replace these operators
\* (RunLengthLog).
EndOffset(records) == Len(records)
LastEpoch(records) == IF records = <<>> THEN 0 ELSE records[Len(records)]
Prefix(records, end) == SubSeq(records, 1, end)

Lesser(a, b) == IF a < b THEN a ELSE b
IsPrefix(a, b) == EndOffset(a) <= EndOffset(b) /\ a = Prefix(b, EndOffset(a))
Majority(voters) == 2 * Cardinality(voters) > Cardinality(Voters)

\* Whether a log with this last epoch and this end is at least as up to date as the voter's (Raft, 5.4.1).
UpToDate(lastEpoch, end, v) ==
    \/ lastEpoch > LastEpoch(log[v])
    \/ lastEpoch = LastEpoch(log[v]) /\ end >= EndOffset(log[v])
    \/ On("VoteForShorterLog")

Init ==
    /\ epoch = [v \in Voters |-> 0]
    /\ votedFor = [v \in Voters |-> None]
    /\ log = [v \in Voters |-> <<>>]
    /\ role = [v \in Voters |-> "follower"]
    /\ votes = [v \in Voters |-> {}]
    /\ asked = {}
    /\ highWatermark = [v \in Voters |-> 0]
    /\ reached = [v \in Voters |-> [w \in Voters |-> 0]]
    /\ crashes = Crashes
    /\ step = [action |-> "Init"]

\* A voter that learns of a newer epoch becomes a follower in it, and has not voted in it yet.
JoinEpoch(v, newer) ==
    /\ epoch' = [epoch EXCEPT ![v] = newer]
    /\ votedFor' = [votedFor EXCEPT ![v] = IF newer > epoch[v] THEN None ELSE @]
    /\ role' = [role EXCEPT ![v] = "follower"]
    /\ votes' = [votes EXCEPT ![v] = {}]

-----------------------------------------------------------------------------
\* The fetch timeout has passed. The voter first asks whether the others would vote for it (pre-vote, KIP-996): that
\* raises no epoch.
BecomeProspective(v) ==
    /\ role[v] = "follower"
    /\ epoch[v] < Epochs
    /\ role' = [role EXCEPT ![v] = "prospective"]
    /\ votes' = [votes EXCEPT ![v] = {v}]
    /\ Step("BecomeProspective", [from |-> v])
    /\ UNCHANGED <<epoch, votedFor, log, asked, highWatermark, reached, crashes>>

\* A voter that does not lead grants the pre-vote to a voter whose log is at least as up to date. That its own fetch
\* timeout has passed, too, is not modelled: it may grant at any time.
GrantPreVote(v, to) ==
    /\ role[to] = "prospective"
    /\ v \notin votes[to]
    /\ role[v] # "leader"
    /\ epoch[v] <= epoch[to]
    /\ UpToDate(LastEpoch(log[to]), EndOffset(log[to]), v)
    /\ votes' = [votes EXCEPT ![to] = @ \cup {v}]
    /\ Step("GrantPreVote", [from |-> v, to |-> to])
    /\ UNCHANGED <<epoch, votedFor, log, role, asked, highWatermark, reached, crashes>>

\* The requests of the other candidates. The voter's own earlier request is dropped: a vote in an earlier epoch has no
\* effect.
StillAsked(v) == {a \in asked : a.candidate # v}

\* A majority would vote for it: the voter begins an epoch and votes for itself.
BecomeCandidate(v) ==
    /\ role[v] = "prospective"
    /\ Majority(votes[v])
    /\ epoch' = [epoch EXCEPT ![v] = @ + 1]
    /\ votedFor' = [votedFor EXCEPT ![v] = v]
    /\ role' = [role EXCEPT ![v] = "candidate"]
    /\ votes' = [votes EXCEPT ![v] = {v}]
    /\ asked' = StillAsked(v) \cup
           {[candidate |-> v, epoch |-> epoch[v] + 1, lastEpoch |-> LastEpoch(log[v]), end |-> EndOffset(log[v])]}
    /\ Step("BecomeCandidate", [from |-> v, epoch |-> epoch[v] + 1])
    /\ UNCHANGED <<log, highWatermark, reached, crashes>>

\* A voter grants one vote an epoch, and writes it to disk before it answers.
GrantVote(v, request) ==
    LET c == request.candidate
        free == request.epoch > epoch[v] \/ votedFor[v] \in {None, c}
    IN  /\ request \in asked
        /\ v # c
        /\ request.epoch >= epoch[v]
        /\ role[v] # "leader" \/ request.epoch > epoch[v]
        /\ free
        /\ UpToDate(request.lastEpoch, request.end, v)
        /\ epoch' = [epoch EXCEPT ![v] = request.epoch]
        /\ votedFor' = [votedFor EXCEPT ![v] = c]
        /\ role' = [role EXCEPT ![v] = "follower"]
        /\ votes' = [votes EXCEPT ![v] = {},
                                  ![c] = IF role[c] = "candidate" /\ epoch[c] = request.epoch THEN @ \cup {v} ELSE @]
        /\ votes' # votes \/ epoch' # epoch \/ votedFor' # votedFor
        /\ Step("GrantVote", [from |-> v, to |-> c, epoch |-> request.epoch])
        /\ UNCHANGED <<log, asked, highWatermark, reached, crashes>>

BecomeLeader(v) ==
    /\ role[v] = "candidate"
    /\ Majority(votes[v])
    /\ role' = [role EXCEPT ![v] = "leader"]
    /\ reached' = [reached EXCEPT ![v] = [w \in Voters |-> 0]]
    /\ Step("BecomeLeader", [from |-> v, epoch |-> epoch[v]])
    /\ UNCHANGED <<epoch, votedFor, log, votes, asked, highWatermark, crashes>>

\* A BeginQuorumEpoch request, or any response, carries a newer epoch.
LearnEpoch(v, other) ==
    /\ epoch[other] > epoch[v]
    /\ JoinEpoch(v, epoch[other])
    /\ Step("LearnEpoch", [from |-> other, to |-> v, epoch |-> epoch[other]])
    /\ UNCHANGED <<log, asked, highWatermark, reached, crashes>>

-----------------------------------------------------------------------------
AppendRecord(l) ==
    /\ role[l] = "leader"
    /\ EndOffset(log[l]) < Records
    /\ log' = [log EXCEPT ![l] = Append(@, epoch[l])]
    /\ Step("AppendRecord", [from |-> l])
    /\ UNCHANGED <<epoch, votedFor, role, votes, asked, highWatermark, reached, crashes>>

\* Whether the follower may fetch from the leader: they are in the same epoch.
MayFetch(f, l) ==
    /\ f # l
    /\ role[l] = "leader"
    /\ role[f] = "follower"
    /\ epoch[f] = epoch[l] \/ On("FetchAcrossEpochs")

\* Whether the follower's log is a prefix of the leader's.
InLine(f, l) == IsPrefix(log[f], log[l])

\* The leader handles a fetch that does not diverge: it learns the follower's log end offset.
AnswerFetch(l, f) ==
    /\ MayFetch(f, l)
    /\ InLine(f, l)
    /\ reached[l][f] # EndOffset(log[f])
    /\ reached' = [reached EXCEPT ![l][f] = EndOffset(log[f])]
    /\ Step("AnswerFetch", [from |-> f, to |-> l, end |-> EndOffset(log[f])])
    /\ UNCHANGED <<epoch, votedFor, log, role, votes, asked, highWatermark, crashes>>

\* The follower's log becomes these records, and the follower learns how many are committed.
Take(f, records, committed) ==
    LET known == Lesser(committed, EndOffset(records))
    IN  /\ log' = [log EXCEPT ![f] = records]
        /\ highWatermark' = [highWatermark EXCEPT ![f] = IF known > @ THEN known ELSE @]

\* The follower handles a fetch response. It appends and flushes the next record, or truncates what the leader does
\* not have, and learns the high watermark.
ApplyFetch(f, l) ==
    /\ MayFetch(f, l)
    /\ LET common == CHOOSE n \in 0..EndOffset(log[f]) :
                        /\ n <= EndOffset(log[l]) /\ Prefix(log[f], n) = Prefix(log[l], n)
                        /\ \A m \in (n + 1)..EndOffset(log[f]) :
                               m > EndOffset(log[l]) \/ Prefix(log[f], m) # Prefix(log[l], m)
           records == IF InLine(f, l) THEN Prefix(log[l], Lesser(EndOffset(log[f]) + 1, EndOffset(log[l])))
                      ELSE Prefix(log[f], common)
       IN  Take(f, records, highWatermark[l])
    /\ log' # log \/ highWatermark' # highWatermark
    /\ Step("ApplyFetch", [from |-> l, to |-> f])
    /\ UNCHANGED <<epoch, votedFor, role, votes, asked, reached, crashes>>

\* A majority has the records up to `end`, and the last of them is of the leader's own epoch (Raft, 5.4.2).
AdvanceHighWatermark(l) ==
    /\ role[l] = "leader"
    /\ \E end \in (highWatermark[l] + 1)..EndOffset(log[l]) :
        /\ Majority({l} \cup {f \in Voters : reached[l][f] >= end})
        /\ LastEpoch(Prefix(log[l], end)) = epoch[l] \/ On("CommitEarlierEpoch")
        /\ highWatermark' = [highWatermark EXCEPT ![l] = end]
        /\ Step("AdvanceHighWatermark", [from |-> l, highWatermark |-> end])
    /\ UNCHANGED <<epoch, votedFor, log, role, votes, asked, reached, crashes>>

-----------------------------------------------------------------------------
\* A voter crashes and starts again: epoch, vote and log are on disk.
Restart(v) ==
    /\ crashes > 0
    /\ crashes' = crashes - 1
    /\ role' = [role EXCEPT ![v] = "follower"]
    /\ votes' = [votes EXCEPT ![v] = {}]
    /\ reached' = [reached EXCEPT ![v] = [w \in Voters |-> 0]]
    /\ highWatermark' = [highWatermark EXCEPT ![v] = 0]
    /\ votedFor' = IF On("ForgetVote") THEN [votedFor EXCEPT ![v] = None] ELSE votedFor
    /\ Step("Restart", [from |-> v])
    /\ UNCHANGED <<epoch, log, asked>>

Next ==
    \/ \E v \in Voters :
        \/ BecomeProspective(v) \/ BecomeCandidate(v) \/ BecomeLeader(v)
        \/ AppendRecord(v) \/ AdvanceHighWatermark(v) \/ Restart(v)
    \/ \E v, w \in Voters : GrantPreVote(v, w) \/ LearnEpoch(v, w) \/ AnswerFetch(v, w) \/ ApplyFetch(v, w)
    \/ \E v \in Voters, request \in asked : GrantVote(v, request)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
OneLeaderPerEpoch ==
    \A v, w \in Voters : role[v] = "leader" /\ role[w] = "leader" /\ epoch[v] = epoch[w] => v = w

\* Where two logs have records of the same epoch at the same offset, they agree up to that offset.
LogMatching ==
    \A v, w \in Voters : \A i \in 1..Lesser(EndOffset(log[v]), EndOffset(log[w])) :
        LastEpoch(Prefix(log[v], i)) = LastEpoch(Prefix(log[w], i)) => Prefix(log[v], i) = Prefix(log[w], i)

Committed(v) == Prefix(log[v], highWatermark[v])

HighWatermarkBound == \A v \in Voters : highWatermark[v] <= EndOffset(log[v])

\* Of two voters' committed records, one sequence is a prefix of the other.
CommittedLogsAgree == \A v, w \in Voters : IsPrefix(Committed(v), Committed(w)) \/ IsPrefix(Committed(w), Committed(v))

\* The leader of the newest epoch has every record below any voter's high watermark.
LeaderCompleteness ==
    \A l, v \in Voters :
        role[l] = "leader" /\ (\A w \in Voters : epoch[w] <= epoch[l]) => IsPrefix(Committed(v), log[l])

EpochsNeverDecrease == [][\A v \in Voters : epoch'[v] >= epoch[v]]_vars

Symmetry == Permutations(Voters)
View == stateVars
=============================================================================
