"""The client's side of the protocol: requests out, answers in; without sockets, clocks or scheduling.

    member = ClassicMember("g", {"range": encode_subscription(["orders"])})
    request = member.join()          # the caller sends it, in the version and to the node that it chooses
    member.joined(answer)            # takes over member id, generation and protocol of an answer without an error

    session = ProducerSession("copier")
    session.become(answer.producer_id, answer.producer_epoch)       # from InitProducerId's response
    request = session.produce({("orders", 0): session.batch(("orders", 0), records)}, timeout_ms=30_000)
    session.appended(("orders", 0), len(records))                   # once the batch was acknowledged

`requests` builds requests from topics and partitions. `group_member` and `producer_session` hold what a client must remember
between two of them. `errors` says what a client does after an error. Simulated and scripted clients, loads, requirements and
tests drive these. A request is a message like any other: a test that needs a wrong one changes its fields before it is encoded.
"""
