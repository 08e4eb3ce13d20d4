"""ZooKeeper as a node meets it: operations and events, a session, the layout of znodes, and decisions as writes.

Nothing here speaks to a server: what goes out is an effect, what comes back an input (`node.effects`, `Node`).
"""
