"""Every command that a --help or a document of the site shows, and how it is tried.

A case is the command as it is shown. Before it runs, parts are swapped for others that take less time or are there: fewer
schedules, a part of the requirements, the reference for Apache Kafka, a broker of the test for an address. The commands of a scene
run one after the other in one folder, which test_examples.py prepares; `{...}` stands for what it prepared.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """A command, what is run for it, and what comes of it."""

    text: str
    swaps: dict[str, str] = field(default_factory=dict)
    """Parts of the text -> what is run instead."""
    more: str = ""
    """Words that are put behind it."""
    code: int = 0
    shows: str = ""
    """A part of what it prints."""
    stops_at: str = ""
    """It does not end by itself: what it prints when it is interrupted."""

    @property
    def run(self) -> str:
        """The command that is run."""
        text = self.text
        for old, new in self.swaps.items():
            assert old in text, f"{text} has no {old}"
            text = text.replace(old, new)
        return f"{text} {self.more}".strip()


def plain(*texts: str) -> tuple[Case, ...]:
    return tuple(map(Case, texts))


ONE_RULE = "API-01"
SHORT = {"--minutes 1": "--minutes 0.1"}
AT = {"127.0.0.1:9092": "{address}"}
A_LIE = "exec:python -m linearizability.mutants.wire adapter earliest-is-0"

SCENES: dict[str, tuple[Case, ...]] = {
    "nothing": plain(
        "tidegauge list",
        "tidegauge list PRD --level must",
        "tidegauge list --level must",
        "tidegauge list --version 3.9 --json",
        "tidegauge explain FRM-04",
        "tidegauge explain PRD --json",
        "tidegauge explain PRD-05",
        "tidegauge releases show",
        "tidegauge releases show 1.1.0 2.4.1 --json",
        "tidegauge strangers show",
        "tidegauge strangers show tansu --json",
        "tidegauge doctor",
        "tidegauge targets list",
        "tidegauge targets list --json",
        "tidegauge history rules",
        "tidegauge history rules lost-write G1a",
        "tidegauge history rules --json",
        "tidegauge findings list",
        "tidegauge findings list --json",
        "tidegauge findings show fenced_producer",
        "tidegauge spec list",
        "tidegauge spec list --json",
        "tidegauge spec explain MCIsr",
        "tidegauge spec explain FetchWithoutFencing",
        "tidegauge spec explain BecomeCandidate",
        "tidegauge spec explain Heartbeat --json",
        "python -m linearizability.mutants list",
        "python -m linearizability.mutants.wire list",
    ),
    "server.properties": (
        Case("tidegauge format server.properties"),
        Case("tidegauge format server.properties --cluster-id $ID", {"server": "second", "$ID": "4L6g3nShT-eMCtK--X86sw"}),
        Case("tidegauge format server.properties --standalone", {"server": "third"}),
        Case("tidegauge serve server.properties", stops_at="serves 0 partitions"),
        Case("tidegauge serve server.properties --set log.dirs=data", stops_at="serves 0 partitions"),
        Case("python -m linearizability.mutants serve NAME server.properties", {"NAME": "acknowledged-without-append"}, stops_at="serves 0 partitions"),
    ),
    "a run": (
        Case("tidegauge run FRM API --target reference:1 --json", {"FRM API": "API-01 FRM-01"}),
        Case("tidegauge report"),
        Case("tidegauge report results/latest --verbose"),
        Case("tidegauge compare results/A results/B"),
        Case("tidegauge compare results/*-run-* --html matrix.html"),
    ),
    "an address": (
        Case("tidegauge run --target addr:localhost:9092", {"localhost:9092": "{address}"}, ONE_RULE),
        Case("tidegauge run PRD-05 --target addr:127.0.0.1:9092 --repeat 10", AT | {"--repeat 10": "--repeat 2"}, shows="2 runs, flakes: none"),
        Case("tidegauge run --target addr:127.0.0.1:9092 --profile core --results results --summary summary.md --baseline baseline.json", AT, ONE_RULE),
        Case("tidegauge run --target addr:broker.example:9093 --client-config client.properties", {"broker.example:9093": "{address}"}, ONE_RULE),
        Case(
            "tidegauge run --target addr:127.0.0.1:19092 --map broker-2=127.0.0.2 --restart-command 'docker restart kafka-{node}'",
            {"127.0.0.1:19092": "{address}"}, ONE_RULE,
        ),
    ),
    "a history": (
        Case("tidegauge history check results/latest", code=1),
        Case("tidegauge history check results/latest --output OUT", code=1),
        Case("tidegauge history show results/latest"),
        Case("tidegauge history show FILE --rule lost-write --limit 1", {"FILE": "results/latest"}),
        Case("tidegauge history export results/latest STORE --to parquet"),
        Case("tidegauge history excerpt results/latest OUT --key orders-0 --offsets 3770-3830", {"OUT": "part", "orders-0": "{partition}", "3770-3830": "2160-2210"}),
        Case("tidegauge history check OUT", {"OUT": "part"}, code=1),
        Case("tidegauge history check --format neutral --json FILE.jsonl.gz", {"FILE": "labelled"}, code=1),
        Case("tidegauge history check history.edn --contract acks=1 --contract idempotence=false", shows="permitted"),
        Case("tidegauge history check history.edn --contract strict_recency=true", code=1, shows="lost-write"),
        Case("tidegauge history check history.edn --contract acks=1 --contract idempotence=false --contract strict_recency=true", shows="permitted"),
        Case("tidegauge history import history.edn imported.jsonl --contract acks=1"),
        Case("tidegauge history check FOLDER --format verifiable --contract min.insync.replicas=1 --contract cleanup=delete", {"FOLDER": "tools"}),
        Case("tidegauge history export results/latest kafka:127.0.0.1:9092/histories --to topic", AT),
        Case("tidegauge history watch results/latest", code=1, shows="judges the whole"),
        Case("tidegauge history watch results/latest --window 300 --json", code=1, shows='"ended": true'),
        Case("tidegauge history watch kafka:127.0.0.1:9092/histories", AT, "--minutes 0.02", code=1),
    ),
    "a simulation": (
        Case("tidegauge fuzz --schedules 500", {"500": "2"}),
        Case("tidegauge fuzz --nodes 3 --schedules 20", {"20": "1"}),
        Case("tidegauge fuzz --mutant torn-tail-kept --until-found --json", {"torn-tail-kept": "acknowledged-without-append"}, code=1),
        Case("tidegauge replay failing-schedule.json --open", shows="explorer.html"),
        Case("tidegauge fuzz campaign night.toml", shows="report.html"),
        Case("tidegauge fuzz campaign night.toml --night 2026-12-01 --json", shows="2026-12-01"),
    ),
    "an adapter": (
        Case("tidegauge adapter new my-adapter", shows="is written"),
        Case("tidegauge adapter new my-adapter --kind container", {"my-adapter": "in-container"}, shows="is written"),
        Case("tidegauge adapter new my-adapter --kind remote", {"my-adapter": "remote.py"}, shows="is written"),
        Case("tidegauge run --target exec:./my-adapter PRD FET", {"PRD FET": ONE_RULE}, shows="exec:./my-adapter (one process) as Kafka"),
    ),
    "the model checker": (
        Case("tidegauge spec check TruncateToHighWatermark", shows="as expected"),
        Case("tidegauge spec counterexample TruncateToHighWatermark"),
        Case("tidegauge spec counterexample IgnoreProposedIsr --svg picture.svg"),
        Case("tidegauge spec behaviours IgnoreMinIsr"),
    ),
}  # fmt: skip
"""In CI."""

SLOW_SCENES: dict[str, tuple[Case, ...]] = {
    "clusters": (
        Case("tidegauge cluster --nodes 3", more="--port {port}", stops_at="alive:"),
        Case("tidegauge cluster --with kafka:4.3.1 --folder mixed", more="--port {port}", stops_at="alive:"),
        Case("tidegauge cluster --with kafka:4.3.1", {"--with": "--folder again --with"}, more="--port {port}", stops_at="alive:"),
        Case("tidegauge cluster --coordination zookeeper --folder historical", more="--port {port}", stops_at="alive:"),
        Case("tidegauge cluster --nodes 5 --folder five --set log.retention.ms=60000", more="--port {port}", stops_at="alive:"),
    ),
    "runs": (
        Case("tidegauge run --target kafka:4.3.1", more=ONE_RULE),
        Case("tidegauge releases store results/latest", shows="1 verdicts"),
        Case("tidegauge releases store results/*kafka-2.8.2", {"2.8.2": "4.3.1"}),
        Case("tidegauge releases measure", more="4.3.1 --only API-01 --again"),
        Case("tidegauge releases measure 2.4.1", {"2.4.1": "4.3.1"}, "--only API-01 --again"),
        Case("tidegauge releases measure 2.4.1 --only GRP --only TOP-20", {"2.4.1": "4.3.1", "GRP": "GRP-01"}, "--again"),
        Case("tidegauge releases measure 4.3.1 --nodes 3", more="--only API-01 --again"),
        Case("tidegauge releases measure 3.9.2-zk", more="--only API-01 --again"),
        Case("tidegauge doctor --target kafka:4.3.1 --json"),
        Case("tidegauge run --target reference:3", more=ONE_RULE),
        Case("tidegauge run FRM PRD-05..PRD-09"),
        Case("tidegauge run --profile core --profile groups", more="--level should", code=0),
        Case("tidegauge run PRD --target \"exec:python -m linearizability.mutants adapter NAME\"", {"PRD": "ACK-01", "NAME": "acknowledged-without-append"}, code=1),
        Case(f'tidegauge run LOF --target "{A_LIE}"', code=1),
        Case("tidegauge run --target rdkafka-mock:3", more=ONE_RULE),
        Case("tidegauge run --target kfake:3", {"kfake:3": "rdkafka-mock"}, "PRD", code=1),
        Case("tidegauge strangers draw results/latest"),
        Case("tidegauge strangers draw results/A --count 5 --seed 7", {"results/A": "results/latest"}),
        Case('tidegauge run --target "exec:python -m linearizability.mutants.wire adapter restricted-toy kafka:4.3.1"', {"kafka:4.3.1": "reference:1"}, ONE_RULE),
        Case("tidegauge run --target kafka:4.3.1 --security SASL_SSL", more=ONE_RULE),
    ),
    "releases": (
        Case("tidegauge targets add 3.8.1"),
        Case("tidegauge targets add 0.8.2.2 2.0.0 --json"),
        Case("tidegauge doctor --target kafka:3.8.1"),
    ),
    "adapters": (
        Case("tidegauge adapter check ./my-adapter", shows="0 broken"),
        Case("tidegauge run --target exec:./my-adapter", more=ONE_RULE),
        Case('tidegauge hunt --target "exec:./my-adapter --some-option"', {" --some-option": ""}, "--minutes 0.1 --faults kill --engine local"),
    ),
    "hunts": (
        Case("tidegauge hunt --target reference:1 --minutes 1", SHORT),
        Case("tidegauge replay results/latest"),
        Case("tidegauge replay results/latest --judge"),
        Case("tidegauge replay --judge results/latest --json"),
        Case("tidegauge replay results/20261121T081500Z-hunt-kafka/round-3", {"20261121T081500Z-hunt-kafka/round-3": "latest"}),
        Case("tidegauge hunt --target reference:3 --minutes 1", SHORT),
        Case("tidegauge hunt --target kafka:4.3.1 --minutes 1", SHORT),
        Case("tidegauge hunt --target kafka:4.3.1:3 --minutes 10 --faults kill,pause", {"--minutes 10": "--minutes 0.1"}),
        Case("tidegauge hunt --target kafka:4.3.1 --until-found --json", more="--minutes 0.3"),
        Case("tidegauge hunt --target reference:3 --config tidegauge.replica.truncation=high-watermark --until-found", more="--minutes 0.3 --reduce 0"),
    ),
    "simulations": (
        Case("tidegauge fuzz --minutes 10 --jobs 2 --seed 100000", {"10 ": "0.02 "}),
        Case("tidegauge fuzz --nodes 3 --schedules 500", {"500": "1"}),
        Case("tidegauge fuzz --coordination zookeeper --nodes 3 --schedules 500", {"500": "1"}),
        Case("tidegauge fuzz --nodes 3 --schedules 5000 --record", {"5000": "1"}),
        Case("tidegauge fuzz --mutant NAME --until-found", {"NAME": "torn-tail-kept"}, code=1),
        Case("tidegauge fuzz --nodes 3 --workload transactions", more="--schedules 1"),
        Case("tidegauge fuzz --nodes 3 --workload groups", more="--schedules 1"),
        Case("tidegauge fuzz --nodes 3 --workload copy", more="--schedules 1"),
        Case("tidegauge fuzz --nodes 3 --python pypy", {"pypy": "{python}"}, "--schedules 1"),
        Case("tidegauge fuzz --nodes 3 --schedules 600 --jobs 1 --python pypy --json", {"600": "2", "pypy": "{python}"}),
        Case("tidegauge fuzz --nodes 3 --schedules 2000 --engine spark --master 'local[2]' --json", {"2000": "4"}),
        Case("tidegauge fuzz --nodes 3 --schedules 5000 --engine spark --master spark://HOST:7077", {"5000": "4", "spark://HOST:7077": "local[1]"}),
        Case("tidegauge fuzz --mutant kip-101-loss --until-found", code=1),
        Case("tidegauge fuzz --mutant kip-101-loss --until-found --by-history", code=1, shows="lost-write"),
        Case("tidegauge --quiet fuzz --nodes 3 --mutant kip-101-loss --by-history --until-found", code=1, shows="violation at seed 46: inconsistent-offsets"),
        Case("tidegauge history check results/latest/failure-1/history --output verdict", code=1, shows="lost-write"),
        Case("tidegauge history show results/latest/failure-1/history", shows="lost-write"),
    ),
    "histories on Spark": (
        Case("tidegauge history export results/latest kafka:127.0.0.1:9092/histories --to topic", AT),
        Case("tidegauge history check kafka:127.0.0.1:9092/histories --engine spark", AT, code=1),
        Case("tidegauge history check 'hdfs://NAMENODE/runs/*' --master spark://HOST:7077 --conf spark.executor.memory=4g", {"hdfs://NAMENODE/": "file:{folder}/", "spark://HOST:7077": "local[1]"}, "--engine spark", code=1),
        Case("tidegauge history check 'hdfs:///runs/*' --master yarn", {"hdfs:///": "file:{folder}/", "--master yarn": "--master 'local[1]'"}, "--engine spark", code=1),
        Case("tidegauge history check 's3a://BUCKET/runs/*' --master k8s://https://HOST:6443", {"s3a://BUCKET/": "file:{folder}/", "k8s://https://HOST:6443": "'local[1]'"}, "--engine spark", code=1),
        Case("tidegauge hunt --target reference:3 --minutes 60 --seed 7 --results /shared/results", {"--minutes 60": "--minutes 0.1", "/shared": "{folder}/shared"}),
        Case("tidegauge history check '/shared/results/*' --engine spark", {"/shared/results": "{folder}/runs"}, code=1),
        Case("tidegauge history check 'runs/*/history' hdfs://namenode:9000/runs/17", {"hdfs://namenode:9000/runs/17": "file:{folder}/runs/17"}, code=1),
    ),
    "brokers measured": (
        Case("tidegauge bench broker --against kafka:4.3.1", more="--case 'fetch 1 MiB' --rounds 1 --seconds 0.3 --warmup 0"),
        Case("tidegauge bench broker --case 'fetch 1 MiB' --rounds 5", {"--rounds 5": "--rounds 1"}, "--seconds 0.3 --warmup 0"),
        Case("tidegauge bench broker --nodes 3 --until-steady --json", {" --until-steady": ""}, "--case 'fetch 1 MiB' --rounds 1 --seconds 0.3 --warmup 0"),
        Case("tidegauge bench endurance --resume", more="--hours 0.001 --leg-minutes 0.5", code=1, shows="grew"),
        Case("tidegauge bench endurance --hours 0.05 --leg-minutes 3 --json", {"0.05": "0.001", "minutes 3": "minutes 0.5"}),
        Case("tidegauge bench groups --against kafka:4.3.1", more="--case 'rebalance 2 members' --rounds 1 --seconds 0.3 --warmup 0"),
        Case("tidegauge bench groups --case 'rebalance 200 members'", {"200": "20"}, "--rounds 1 --seconds 0.3 --warmup 0"),
        Case("tidegauge bench transactions --against kafka:4.3.1", more="--rounds 1 --seconds 0.3 --warmup 0"),
        Case("tidegauge bench transactions --rounds 5 --json", {"--rounds 5": "--rounds 1"}, "--seconds 0.3 --warmup 0"),
        Case("tidegauge bench compaction", more="--case '1 KB, lz4' --megabytes 40 --rounds 1"),
        Case("tidegauge bench compaction --case '1 KB, lz4' --megabytes 100 --json", {"100": "40"}, "--rounds 1"),
        Case("tidegauge bench scale --json", more="--kind partitions --kind start --partitions 10 --start 10"),
        Case("tidegauge bench scale --kind partitions --partitions 100,1000 --resume", {"100,1000": "10"}),
        Case("tidegauge bench scale --kind log --log 10000 --against ''", {"10000": "5"}),
        Case("tidegauge bench failover --against kafka:4.3.1:3", more="--fault kill --client confluent-kafka --rounds 1"),
        Case("tidegauge bench failover --fault kill --json", more="--client confluent-kafka --rounds 1"),
        Case("tidegauge bench failover --client confluent-kafka --client java --rounds 5", {"--rounds 5": "--rounds 1"}, "--fault stop"),
    ),
    "checkers measured": (
        Case("tidegauge bench history", more="--facts 20000 --no-spark"),
        Case("tidegauge bench history --facts 1000000 --facts 10000000 --json", {"10000000": "40000", "1000000": "20000"}),
        Case("tidegauge bench history --facts 1000000 --facts 10000000 --facts 100000000 --json", {"100000000": "60000", "10000000": "40000", "1000000": "20000"}, "--no-spark"),
        Case("tidegauge bench history --facts 10000000 --partitions 1 --rules five", {"10000000": "20000"}, "--no-spark"),
        Case("tidegauge bench history --facts 1000000 --shape small --no-spark", {"1000000": "20000"}),
        Case("tidegauge bench history --facts 10000000 --shape skewed --no-spark", {"10000000": "20000"}),
        Case("tidegauge bench history --facts 1000000 --master standalone", {"1000000": "20000"}, "--rules five"),
        Case("tidegauge bench fuzz --resume", more="--mutant torn-tail-kept --seeds 1"),
        Case("tidegauge bench fuzz --mutant kip-279 --seeds 3 --json", {"--seeds 3": "--seeds 1"}, "--schedules 5"),
        Case("tidegauge bench fuzz --clusters --resume", more="--mutant kip-279 --seeds 1 --schedules 5"),
        Case("tidegauge bench fuzz --workload groups --workload transactions --workload copy --resume --record", more="--minutes 0.01"),
        Case("tidegauge bench suite --resume --json", more="--count 1"),
        Case("tidegauge bench suite --resume --jobs 2 --json", more="--count 1"),
        Case("tidegauge bench suite --lie heartbeats-always-fine"),
        Case("tidegauge bench suite --lie earliest-is-0"),
        Case("tidegauge bench suite --count 5 --jobs 2", {"--count 5": "--count 1"}),
        Case("tidegauge bench suite --rewritings 5000 --jobs 24 --resume --json", {"5000": "1", "24": "2"}),
        Case("tidegauge bench damage --trials 100", {"100": "2"}),
        Case("tidegauge bench damage --trials 2500 --json", {"2500": "2"}),
        Case("tidegauge bench damage --resume --json", more="--trials 1"),
        Case("tidegauge bench damage --resume", more="--trials 1"),
        Case("tidegauge bench damage --target kafka:4.3.1:1 --trials 20 --resume", {"20": "1"}, code=1, shows="silently less"),
        Case("python -m conformance.rewritten --first 17 --trials 1"),
    ),
    "findings": (
        Case("tidegauge findings reproduce fenced_producer", more="--target reference:1", code=1),
        Case("tidegauge findings reproduce fenced_producer --target reference:1", code=1),
        Case("tidegauge findings reproduce unwritten_marker --target kafka:3.9.2", code=1, shows="not shown"),
        Case("tidegauge findings reproduce unwritten_marker --target kafka:3.9.2 --json", code=1),
    ),
    "the specification": (
        Case("tidegauge spec check"),
        Case("tidegauge spec check MCIsr IgnoreMinIsr --record"),
        Case("tidegauge spec check --all --resume --record --json"),
        Case("tidegauge spec check --all", more="--resume"),
        Case("tidegauge spec check --all --engine spark --master spark://HOST:7077", {"spark://HOST:7077": "'local[1]'"}, "--resume"),
        Case("tidegauge spec reach MCFailover"),
        Case("tidegauge spec reach --resume --record --json", more="--budget-s 1"),
        Case("tidegauge spec mutate Replica.ExpandIsr", code=1, shows="2 of 2 mutants"),
        Case("tidegauge spec mutate Quorum --for-s 600", {"600": "1"}, code=2, shows="left"),
        Case("tidegauge spec mutate --dry-run"),
        Case("tidegauge spec mutate Groups --singly --largest-s 9", more="--for-s 1", shows="left"),
        Case("tidegauge spec trace results/latest/traces"),
        Case("tidegauge spec trace one.jsonl --json", {"one.jsonl": "results/latest/traces"}),
        Case("tidegauge spec trace results/latest/traces --look-ups 100"),
        Case("tidegauge spec trace results/latest/traces --engine spark --master spark://HOST:7077", {"spark://HOST:7077": "'local[1]'"}),
        Case("tidegauge spec rules", more="--seconds 2"),
        Case("tidegauge spec rules --record --json", more="--seconds 2"),
        Case("tidegauge spec behaviours MCRecovery --count 200 --out schedules.jsonl"),
        Case("tidegauge spec behaviours MCFailover --cover --walk 100", {"100": "2"}, "--out cover.jsonl"),
        Case("tidegauge spec behaviours MCFailover --cover --walk 40", {"40": "2"}, "--out cover.jsonl"),
        Case("tidegauge spec behaviours MCTransactions --walk 20", {"20": "2"}),
        Case("tidegauge spec behaviours FetchWithoutFencing --faults schedules"),
        Case("tidegauge replay schedules/FetchWithoutFencing-counterexample-0.json"),
    ),
    "changes of the code": (
        Case("python -m linearizability.mutants.code list replication.leader"),
        Case("python -m linearizability.mutants.code show"),
        Case("python -m linearizability.mutants.code run --sample 50 --for-s 3600", {"50": "1", "3600": "1"}),
        Case("python -m linearizability.mutants.code with storage.log:Log.append_as_leader:bound1 pytest tests/storage", {"tests/storage": "--version"}),
        Case("python -m linearizability.mutants judge [NAME...]", {"[NAME...]": "torn-tail-kept"}),
        Case("python -m linearizability.mutants.wire restricted"),
    ),
}  # fmt: skip
"""By `make test-slow`."""

BY_TUTORIAL = {
    "tests/repository/test_tutorial.py::test_the_quick_commands_print_what_is_shown": (
        "tidegauge --quiet run --target reference:1 PRD-05 ACK-01",
        "tidegauge explain ACK-01",
        'tidegauge --quiet run --target "exec:python -m linearizability.mutants adapter acknowledged-without-append" ACK-01 ACK-02',
        "tidegauge --quiet fuzz --nodes 3 --mutant kip-101-loss --until-found",
        "tidegauge --quiet replay results/latest/failure-1/schedule.json",
    ),
    "tests/repository/test_tutorial.py::test_the_specification_proves_it": (
        "tidegauge spec explain TruncateToHighWatermark",
        "tidegauge --quiet spec check MCFailover TruncateToHighWatermark",
        "tidegauge spec counterexample TruncateToHighWatermark --svg counterexample.svg",
    ),
}
BY_OTHERS = {command: test for test, commands in BY_TUTORIAL.items() for command in commands} | {
    "tidegauge history check my-run": "tests/history/test_own_histories.py::test_the_example_of_the_readme_loses_a_record",
    "tidegauge strangers store results/latest": "tests/conformance/test_strangers.py::test_a_whole_run_is_stored_by_the_name_of_its_target",
    "tidegauge run --target tansu": "tests/targets/test_strangers.py::test_a_stranger_of_one_node_dies_and_is_brought_back",
    "tidegauge run --target noida": "tests/targets/test_strangers.py::test_a_stranger_of_one_node_dies_and_is_brought_back",
    "tidegauge run --target kfake": "tests/targets/test_strangers.py::test_a_stranger_of_one_node_dies_and_is_brought_back",
    "tidegauge cluster --pypy": "tests/targets/test_pypy.py::test_a_cluster_is_executed_by_pypy",
    "tidegauge run --target crabka:3": "tests/targets/test_strangers.py::test_each_node_of_crabka_is_a_process",
    "tidegauge hunt --target reference:3 --backend docker --image tidegauge --minutes 10": "tests/targets/test_image.py::test_its_nodes_are_hunted",
    "docker run --rm --network container:broker": "tests/targets/test_image.py::test_it_judges_a_broker_in_another_container",
    "tidegauge adapter check './remote.py cluster.json' --json": "tests/targets/test_adapter_examples.py::test_machines_keep_the_contract",
    "make image": "tests/targets/test_image.py::test_it_is_not_root_and_has_all_packages",
    "python -m tests.coordinator.drawn_transactions 0 1000": "tests/coordinator/test_transactions_beside_kafka.py::test_transactions_do_as_kafkas",
    "python -m tests.replication.drawn_partitions 0 1000": "tests/replication/test_partition_beside_kafka.py::test_partitions_do_as_kafkas",
    "python -m tests.storage.drawn_starts 0 2000": "tests/storage/test_starts_beside_kafka.py::test_starts_do_no_more_harm_than_kafkas",
    "python -m tests.replication.drawn_followers 0 300": "tests/replication/test_followers_beside_kafka.py::test_followers_do_as_kafkas",
    "python -m tests.targets.drawn_requests 0 20 --requests 700": "tests/targets/test_drawn_requests.py::test_answers_are_alike",
    "python -m tests.targets.drawn_damage 10 16 --requests 500": "tests/targets/test_drawn_requests.py::test_answers_are_alike",
    "python -m tests.targets.drawn_permissions 0 5 --requests 500": "tests/targets/test_drawn_requests.py::test_answers_are_alike",
    "python -m tests.targets.drawn_settings 0 10 --each": "tests/targets/test_drawn_settings.py::test_settings_that_meet_each_other",
    "python -m tests.runtime.test_files_beside_kafka 0 20000": "tests/runtime/test_files_beside_kafka.py::test_names_that_must_fit_each_other",
    "python -m tests.controller.test_quorum_beside_kafka --members 1000": "tests/controller/test_quorum_beside_kafka.py::test_members_do_as_kafkas",
    "python -m tests.node.test_sessions_beside_kafka 0 3000": "tests/node/test_sessions_beside_kafka.py::test_sessions_are_those_of_kafka",
    "make run": ".ci/",
    "make test": ".ci/",
}
"""What needs a daemon, a compiler or a whole run -> the test that runs it."""
