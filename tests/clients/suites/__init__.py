"""Client libraries' own test suites, run from outside against a target of ours.

    python -m tests.clients.suites franz-go                          # three nodes of the reference
    python -m tests.clients.suites librdkafka --target kafka:4.3.1   # as many nodes of Apache Kafka
    python -m tests.clients.suites kafka-go --run 'TestReader'       # some of the tests
    python -m tests.clients.suites kafka-python --store              # keep the outcomes in results.json
    python -m tests.clients.suites --page                            # write docs/client-suites.md from them

| suite | whose tests | from |
| --- | --- | --- |
| `franz-go` | package kgo of github.com/twmb/franz-go | the released Go module |
| `kafka-go` | the main package of github.com/segmentio/kafka-go | the released Go module |
| `sarama` | the functional tests of github.com/IBM/sarama, with Shopify's toxiproxy | the released Go modules |
| `confluent-kafka-go` | package kafka of github.com/confluentinc/confluent-kafka-go | the released Go module |
| `librdkafka` | librdkafka's test-runner, without the tests that need no broker | the crate rdkafka-sys, which carries its sources |
| `rskafka`, `rust-rdkafka` | the integration tests of rskafka and of rust-rdkafka | the crates rskafka and rdkafka |
| `kafka-python` | kafka-python's integration tests | its source distribution |

Versions are pinned, sources are fetched by each registry's own client (`go`, `cargo`, `pip`) and kept below `.cache/suites`; none of
them is part of this repository. aiokafka's source distribution holds no tests.
"""
