"""Brokers that others wrote, as targets: fetched from registries in pinned versions when they are first used, none committed.

| spec | what it is |
| --- | --- |
| `crabka[:NODES]` | crabka (Rust), each node a process, with a quorum and replication of its own |
| `kfake[:NODES]` | the fake cluster of franz-go (Go) |
| `tansu` | tansu (Rust), with storage in memory |
| `noida` | noida-db (Rust), which emulates Kafka beside databases |
| `rdkafka-mock[:NODES]` | the mock cluster in librdkafka (C), as confluent-kafka carries it |

README.md says what each one can do. What they differ in from Apache Kafka is theirs: nothing here hides or mends it.
"""
