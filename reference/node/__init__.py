"""One node of the cluster as a deterministic state machine: requests and ticks in, effects out.

    node            the node: its state, its start, its routing
    apis            the handler of each API, and the advertised versions
    effects         a node's outputs
    requests        a request, its response, and the purgatories of delayed requests
    context         the parts that all handlers share; each handler gets other parts by name
    metadata, produce, fetch, fetch_sessions, offsets, topics, configs, producers, groups, log_dirs
                    the handlers, one module for each subject of the protocol

A handler reads in one order: decode (mostly before the call), validate, fence, apply, respond. Where it does several of these,
comments name them. It returns the response, or None if it has delayed the request or has ended the connection's request
itself.
"""
