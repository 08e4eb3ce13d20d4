"""One node of the cluster as a deterministic state machine: requests and ticks in, effects out.

    node            the node: its state, its start, its routing
    apis            which API goes to which handler, and what is advertised
    effects         what a node wants done
    requests        a request, its response, and the purgatories for those that must wait
    context         what the parts and handlers share; each gets by name what else it needs
    metadata, produce, fetch, fetch_sessions, offsets, topics, configs, producers, groups, log_dirs
                    the handlers, one module for what a client would call one subject

A handler reads in one order: decode (done before it, but for what depends on the version), validate, fence, apply, respond.
Where it does several of these, comments name them. It returns the response, or None when it has parked the request or has said
itself what happens to the connection.
"""
