"""One page a requirement, one an area, and two indexes: by area and by profile. All from the catalogue."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from conformance.known_bugs import KNOWN_BUGS
from conformance.levels import Level
from conformance.profiles import ConformanceProfile
from conformance.releases import LONGEST_REASON, NOT_MEASURED
from conformance.requirement import AREAS, Entry, Requirement, catalogue
from docs.site.evidence import NOT_OWED, grouped, strangers

DESCRIPTIONS = {
    ConformanceProfile.CORE: "producers and consumers that assign partitions to themselves, on one node",
    ConformanceProfile.GROUPS: "consumer groups, classic and KIP-848",
    ConformanceProfile.TRANSACTIONS: "transactions, and what read_committed shows",
    ConformanceProfile.ADMIN: "topics, configurations, retention and compaction",
    ConformanceProfile.REPLICATION: "several nodes: in-sync replicas, elections, reassignments",
    ConformanceProfile.HISTORY: "what clients saw while nodes were killed, stopped and frozen",
}


def requirement_pages() -> dict[str, str]:
    """File name -> Markdown."""
    entries = list(catalogue().values())
    pages = {f"{entry.requirement.id}.md": requirement_page(entry) for entry in entries}
    for area in AREAS:
        if inside := [entry.requirement for entry in entries if entry.requirement.area == area]:
            pages[f"{area}.md"] = _area_page(area, inside)
    records = [entry.requirement for entry in entries]
    return pages | {"index.md": _index(records), "profiles.md": _profiles(records)}


def sample() -> set[str]:
    """Requirements whose pages are of every shape: the first of each area, and the first that has a field."""
    chosen: dict[str, str] = {}
    for id, entry in catalogue().items():
        for shape in (entry.requirement.area, *dict(_facts(entry))):
            chosen.setdefault(shape, id)
    return set(chosen.values())


def heading_alone(id: str) -> str:
    """The page of a requirement without what is known of it."""
    return f"---\norphan: true\n---\n\n# {id}\n"


def requirement_page(entry: Entry) -> str:
    """All that is known of one requirement."""
    record = entry.requirement
    parts = [
        "---\norphan: true\n---",
        f"# {record.id}",
        f"[Requirements](index.md) / [{AREAS[record.area]}]({record.area}.md)",
        f"> {text(record.sentence)}",
        _table(("field", "what the catalogue says"), _facts(entry)),
        "## Evidence\n\nOf Apache Kafka's releases:",
        _table(("verdict", "releases", "seen"), _release_rows(entry)),
    ]
    if rows := [(one.verdicts.get(record.id, NOT_MEASURED), f"`{one.target}`", one.day) for one in strangers()]:
        parts += ["Of brokers that others wrote ([more](../conformance/strangers/README.md)):"]
        parts += [_table(("verdict", "target", "day"), rows)]
    parts += [
        "## Is it wrong?\n\n[Disputes](../docs/disputes.md) says what counts as evidence, and what happens then. See it:",
        f"```sh\ntidegauge explain {record.id}\ntidegauge run {record.id} --target kafka:4.3.1\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(entry: Entry) -> list[tuple[str, str]]:
    """The fields of the record that say something, and where the test is."""
    record = entry.requirement
    file = entry.module.replace(".", "/") + ".py"
    needs = record.needs
    needed = [f"{needs.nodes} nodes"] if needs.nodes > 1 else []
    needed += [f"the hook `{hook}`" for hook in needs.hooks]
    needed += [f"`{name}={value}`" for name, value in needs.configs.items()]
    needed += [f"{api} v{version}" for api, version in needs.apis.items()]
    bugs = [bug for bug in KNOWN_BUGS if record.id in bug.ids]
    facts = {
        "level": record.level.value,
        "profile": record.profile.value,
        "who notices": text(record.notices),
        "accepted": text(record.accepted),
        "tolerated": text(record.tolerated),
        "source": text(record.source),
        "owed": record.owed,
        "needs": ", ".join(needed),
        "judged after": _links(record.prerequisites),
        "uses": _links(record.builds_on),
        "Kafka's own bugs": "; ".join(f"{bug.reference}: {text(bug.what)}" for bug in bugs),
        "not testable": text(record.untestable),
        "corrected by Kafka": text(record.draft),
        "test": f"`{entry.test.__name__}` in [{file}](../{file})" if entry.test else "",
    }
    return [(name, value) for name, value in facts.items() if value]


def _release_rows(entry: Entry) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for evidence, versions in grouped(entry).items():
        cut = "…" if len(evidence.reason) == LONGEST_REASON else ""
        seen = evidence.reason + cut + (" (measured before the test changed)" if evidence.outdated else "")
        rows.append((evidence.verdict, ", ".join(versions), text(seen.strip())))
    return sorted(rows, key=lambda row: row[0] == NOT_OWED)


def _area_page(area: str, records: Iterable[Requirement]) -> str:
    rows = [(f"[{one.id}]({one.id}.md)", one.level.value, one.profile.value, text(one.sentence)) for one in records]
    head = f"---\norphan: true\n---\n\n# {AREAS[area]}\n\n[Requirements](index.md) / {area}\n\n"
    return head + _table(("id", "level", "profile", "sentence"), rows) + "\n"


def _index(records: list[Requirement]) -> str:
    levels = list(Level)
    rows: list[tuple[str, ...]] = []
    for area, title in AREAS.items():
        counts = Counter(record.level for record in records if record.area == area)
        if counts:
            rows.append((f"[{area}]({area}.md)", title, *(str(counts[level] or "") for level in levels)))
    head = "# Requirements by area\n\n[By profile](profiles.md); [the matrix](matrix.md) of verdicts.\n\n"
    return head + _table(("area", f"{len(records)} requirements", *levels), rows) + "\n"


def _profiles(records: list[Requirement]) -> str:
    parts = ["# Requirements by profile", "Every requirement belongs to one profile. [By area](index.md)."]
    for profile in ConformanceProfile:
        areas: dict[str, list[str]] = defaultdict(list)
        for record in records:
            if record.profile is profile:
                areas[record.area].append(record.id)
        count = sum(map(len, areas.values()))
        parts.append(f"## {profile}\n\n{count} requirements: {DESCRIPTIONS[profile]}.")
        parts.append(_table(("area", "requirements"), [(AREAS[area], _links(ids)) for area, ids in areas.items()]))
    return "\n\n".join(parts) + "\n"


def _links(ids: Iterable[str]) -> str:
    return " ".join(f"[{id}]({id}.md)" for id in ids)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text(plain: str) -> str:
    """A sentence of the catalogue as Markdown that shows it unchanged, also within a table."""
    return "".join(f"\\{one}" if one in r"\`*_{}[]<>#|$~" else one for one in " ".join(plain.split()))
