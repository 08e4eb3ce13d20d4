"""What each capability needs: `python -m tests.repository.size [--write] [--files CAPABILITY]`.

Counts the lines of Python of every part, product and tests apart. Each file belongs to the first capability of the table that
names it; `--write` writes docs/size.md, and `--files` lists the files of one capability.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "size.md"
BUDGET = 120_000


class Capability(NamedTuple):
    name: str
    gives: str
    pattern: str
    """Of the paths of its files."""
    is_later: bool = False
    """Whether it came after the budget of 120,000 lines was set (2026-11-24), or was mostly built since."""


CAPABILITIES = (
    Capability(
        "generated messages", "every request and response of Kafka's schemas, and the records read here, as typed Python",
        r"reference/protocol/(messages/|apis\.py)",
    ),
    Capability(
        "ZooKeeper", "brokers that ZooKeeper coordinates: simulated, real, specified",
        r".*(zookeeper|znode)", True,
    ),
    Capability(
        "security", "TLS, SASL, ACLs, and the requirements that judge them",
        r"reference/(authorizer|security)/|reference/node/(access|acls|authentication|principals|sasl_|scram_)"
        r"|reference/runtime/(peer_login|scram_|security|tls)|reference/controller/acls|conformance/(access|sasl)"
        r"|conformance/requirements/(access|authentication|scram)|linearizability/targets/security|linearizability/mutants/access"
        r"|tests/(authorizer|security)/|tests/node/test_(access|authentication)|tests/runtime/test_(scram|secur|tls)"
        r"|tests/conformance/test_access|tests/targets/(secured|test_mixed_access|test_security|test_sessions)", True,
    ),
    Capability(
        "quotas", "Kafka's quotas for clients, and the requirements that judge them",
        r".*(quota|throttling|test_meters)", True,
    ),
    Capability(
        "changing voters", "voters that join and leave a running quorum (KIP-853)",
        r"reference/controller/quorum_(changing|joining|raising|voters|addresses)|tests/controller/test_quorum_(changing|raising|voters)"
        r"|tests/targets/test_(changing_voters|raising)", True,
    ),
    Capability(
        "mixed clusters", "the reference and Kafka's releases in one cluster, upgraded while they run",
        r".*targets/(mixed|test_mixed|test_rolling|test_old_brokers)|tests/tools/test_beside_kafka", True,
    ),
    Capability(
        "inspector", "what an administrator asks at the end of a simulated run, held against every node",
        r"linearizability/simulation/inspecting|tests/simulation/test_inspecting", True,
    ),
    Capability(
        "explorer", "pages on which a run or a counterexample is stepped through",
        r".*explorer", True,
    ),
    Capability(
        "site", "the documentation as pages, one for each requirement", r"docs/|tests/repository/test_site", True,
    ),
    Capability(
        "strangers and releases", "what the suite says of brokers that others wrote and of Kafka's releases",
        r"conformance/(strangers|releases|known_bugs|changes|baseline)|linearizability/targets/strangers"
        r"|tests/(conformance|targets)/test_(strangers|releases|known_bugs)", True,
    ),
    Capability("campaigns", "nights of simulated runs by a plan, and their report", r".*/campaign/", True),
    Capability("damage", "mutated histories and logs that the judges must notice", r".*/damage/", True),
    Capability("Spark", "histories that are too large for one machine", r"linearizability/pipeline|.*on_spark|tests/pipeline"),
    Capability("protocol", "frames, codecs, record batches, compression, errors", r"reference/protocol|tests/protocol"),
    Capability("storage", "logs, segments, indexes, recovery, compaction, retention", r"reference/storage|tests/storage"),
    Capability("replication", "leaders, followers, the ISR and the high watermark", r"reference/replication|tests/replication"),
    Capability("controller", "the metadata quorum and the controller's decisions", r"reference/controller|tests/controller"),
    Capability(
        "groups and transactions", "classic and consumer groups, offsets, transactions", r"reference/coordinator|tests/coordinator",
    ),
    Capability("node", "one node: messages and ticks in, effects out", r"reference/node|tests/node"),
    Capability("runtime", "sockets, timers, files, signals, metrics, commands", r"reference/(runtime|commands|__init__)|tests/runtime"),
    Capability("specification", "TLA+ models, their commands, traces, behaviours, mutants", r"spec/|tests/spec"),
    Capability("guided runs", "a simulated cluster taken along behaviours of the specification", r".*/guided/"),
    Capability("simulation", "clusters under faults in virtual time", r"linearizability/simulation|tests/(simulation|scenarios)"),
    Capability("histories", "what clients saw: recorded, read, imported, exported", r"linearizability/history|tests/history"),
    Capability("rules", "one pure function for each anomaly", r"linearizability/(rules|agreement)|tests/rules"),
    Capability("targets", "starting and reaching a broker that is judged", r"linearizability/(targets|local_cluster)|tests/targets"),
    Capability(
        "faults and loads", "what hurts a broker while clients use it", r"linearizability/(faults|workload|client)/|tests/(faults|workload|client)/",
    ),
    Capability("planted bugs", "mutants of the reference, lies on the wire, changes of the code", r"linearizability/mutants|tests/mutants"),
    Capability("requirements", "one function for each requirement", r"conformance/requirements"),
    Capability("suite", "planning, running and reporting requirements", r"conformance|tests/conformance"),
    Capability("measurements", "what the parts cost, side by side with Kafka", r"linearizability/bench|tests/bench"),
    Capability("findings", "bugs found in Kafka, each with a reproduction", r"linearizability/findings"),
    Capability(
        "commands and testing kit", "the command line, progress, the pytest plugin",
        r"tidegauge|linearizability/(testing/|[a-z_]+\.py)",
    ),
    Capability("whole systems", "clients, tools and abuse held against whole clusters", r"tests/(clients|tools|abuse|confusions)"),
    Capability("repository", "documents, packaging, renaming, the tree's own rules", r"tests/|typings/|setup\.py"),
)  # fmt: skip
"""The first one whose pattern a path begins with is the file's."""


def files() -> list[str]:
    """Every Python file that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.pyi"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return [path for path in listed.stdout.splitlines() if (ROOT / path).exists()]


def capability_of(path: str) -> str:
    """Its name; empty where the table has none."""
    return next((each.name for each in CAPABILITIES if re.match(each.pattern, path)), "")


def is_test(path: str) -> bool:
    return path.startswith("tests/")


def count() -> Counter[tuple[str, bool]]:
    """(capability, whether tests) -> lines."""
    found: Counter[tuple[str, bool]] = Counter()
    for path in files():
        found[capability_of(path), is_test(path)] += len((ROOT / path).read_text().splitlines())
    return found


def _rounded(lines: int) -> str:
    return f"{round(lines, -2):,}"


def page(lines: Counter[tuple[str, bool]]) -> str:
    """docs/size.md. Numbers are rounded to hundreds, and the page is written again when they have moved."""
    rows: dict[bool, list[str]] = {False: [], True: []}
    totals: Counter[tuple[bool, bool]] = Counter()
    for each in CAPABILITIES:
        product, tests = lines[each.name, False], lines[each.name, True]
        totals[each.is_later, False] += product
        totals[each.is_later, True] += tests
        rows[each.is_later].append(f"| {each.name} | {each.gives} | {_rounded(product)} | {_rounded(tests)} |")
    head = "| capability | what it gives | product | tests |\n| --- | --- | --- | --- |"

    def sum_of(is_later: bool) -> str:
        return f"| **together** | | **{_rounded(totals[is_later, False])}** | **{_rounded(totals[is_later, True])}** |"

    promised = totals[False, False] + totals[False, True]
    return "\n".join(
        [
            "# Size",
            "",
            "Lines of Python by capability, `python -m tests.repository.size --write`. The budget is 120,000 lines for what the project",
            "promised when it was set (2026-11-24); each capability that came later says here what it needs. A file belongs to one",
            "capability, so what a capability needs inside of shared files (a handler's branch, a case of a table) is not counted to it.",
            "",
            f"The first table has {_rounded(promised)} lines, {_rounded(promised - BUDGET)} more than the budget; both have",
            f"{_rounded(sum(lines.values()))}.",
            "",
            "## What the budget is for",
            "",
            head,
            *rows[False],
            sum_of(False),
            "",
            "## Since then",
            "",
            head,
            *rows[True],
            sum_of(True),
            "",
        ]
    )


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            print(page(count()))
        case ["--write"]:
            PAGE.write_text(page(count()))
        case ["--files", name]:
            for path in files():
                if capability_of(path) == name:
                    print(path)
        case _:
            sys.exit("usage: python -m tests.repository.size [--write] [--files CAPABILITY]")


if __name__ == "__main__":
    main(sys.argv[1:])
