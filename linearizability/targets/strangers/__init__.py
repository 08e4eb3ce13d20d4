"""Other vendors' brokers as targets: fetched from registries in pinned versions on first use, never committed.

| spec | what it is |
| --- | --- |
| `crabka[:NODES]` | crabka (Rust), each node a process, with its own quorum and replication |
| `kfake[:NODES]` | the fake cluster of franz-go (Go) |
| `tansu` | tansu (Rust), with storage in memory |
| `noida` | noida-db (Rust), which emulates Kafka beside databases |
| `rdkafka-mock[:NODES]` | the mock cluster in librdkafka (C), as confluent-kafka carries it |

README.md lists the capabilities of each one. Nothing here hides or corrects their differences from Apache Kafka.
"""
