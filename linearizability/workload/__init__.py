"""Clients that make histories: they produce and consume while faults are injected, and record their operations.

- `profile`   the clients of a run: their acks, rates, groups; the standard mix
- `client`    the process that one client runs in
- `exact_producer`, `producer`, `consumer`   the client's work, over the raw wire or by librdkafka
- `outcomes`  which errors prove that nothing happened
- `drain`     the final read of whole partitions, after healing
- `assignment`, `partitioning`, `batching`   the rules of Kafka's own clients, pure: who reads what, where a record goes, and when
- `cluster`   topics made, leaders and in-sync replicas seen, through the raw wire
"""
