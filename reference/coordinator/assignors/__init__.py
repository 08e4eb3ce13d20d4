"""The assignors that run in the broker (KIP-848). They decide which member is assigned which partition.

Each is a pure function from a `GroupSpec` to the target assignment of every member. Source:
org.apache.kafka.coordinator.group.assignor; the client-side assignors of classic groups are not here.
"""
