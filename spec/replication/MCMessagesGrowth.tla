-------------------------- MODULE MCMessagesGrowth ---------------------------
(***************************************************************************)
(* The message grain where a reassignment adds a replica: that replica may *)
(* fetch before the leader knows of it.                                    *)
(***************************************************************************)
EXTENDS MCMessages

\* The partition begins with one replica.
Singles == {{b} : b \in Brokers}
=============================================================================
