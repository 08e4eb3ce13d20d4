"""What requirements build on: where one fails, and one that it builds on fails too, it is *blocked* by that one.

`requires` in a record names what must hold before a requirement can be judged at all. What stands here is only used on its
way: the offsets at which it reads, the generation in which its members beat. So it is judged all the same, and a pass is a
pass. A failing step that a helper names (`broker.built_on`) is looked at first.

Rows hold areas and single requirements. An area means those of its requirements that have no row above: no two build on
each other.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile

RECORDS = "PRD ACK FET FSS EPO LOF IDM TXN TXV RET CMP FMT"
"""Areas that write records and read them."""
CLASSIC = "GRP OFF-06 OFF-08 OFF-09 OFF-14 OFF-17 OFF-26 GAD-02 GAD-04 GAD-07 GAD-09 GAD-10 CGH-17 CGH-34 CGH-35 CGH-36 CGH-38"
"""What has members of a classic group."""
COMMITTED = (
    "OFF TXV-08 TXV-09 TXV-17 TXV-18 TXN-18 TXN-36 TXN-37 TXN-38 GAD-03 GAD-04 GAD-07 GAD-11 GAD-13 CGH-14 CGH-17 CGH-21 "
    "CGH-34 CGH-40 GRP-27"
)
"""What commits offsets and asks for them."""
CONSUMERS = "CGH GAD-05 GAD-08 GAD-11 GAD-14"
"""What has members of a consumer group."""
TRANSACTIONS = "TXN TXV FET-14 FET-19 FET-20 FET-22 FET-24 LOF-13 CMP-08 IDM-17 OFF-17 OFF-29"
"""What has transactions."""

USED_BY = {
    "API-01": "API-02 API-05 API-07 API-11",
    "API-04": "API-11",
    "FRM-12": "API-02 API-03 API-04 API-08 API-10",
    "COO-01": f"BAS-07 BAS-08 BAS-10 BAS-11 {CLASSIC} {COMMITTED} {CONSUMERS} {TRANSACTIONS}",
    "BAS-03": f"{RECORDS} TOP-13 TOP-18 TOP-19 CFG-09",
    "BAS-04": f"{RECORDS} TOP-19",
    "BAS-05": f"{RECORDS} TOP-18 TOP-19 TOP-20",
    "ACK-15": "PRD-29 TXN-16",
    "PRD-29": "PRD ACK TXN-18 IDM-11 TXV-02",
    "BAS-12": "CFG",
    "BAS-13": "TOP-19 TOP-20 ACK-13 IDM-16 FSS-06 LOF-01 TXV-14 CMP-07 CMP-10",
    "GRP-06": f"GRP-08 BAS-07 {CLASSIC}",
    "GRP-19": "GRP-08 GRP-33 GRP-39 GAD-04 OFF-05",
    "GRP-08": f"BAS-07 {CLASSIC}",
    "BAS-07": CLASSIC,
    "BAS-08": COMMITTED,
    "BAS-09": "IDM TXN TXV",
    "IDM-01": "IDM",
    "TXN-01": f"BAS-10 {TRANSACTIONS}",
    "BAS-10": TRANSACTIONS,
    "BAS-11": CONSUMERS,
    "MET-07": "TOP-17 TOP-18 TOP-24",
    "ACK-01": "FET FSS LOF IDM TXN TXV RET CMP TOP-18 TOP-19",
    "FET-10": "FET-18 FSS-05 RET-07 TXN TXV CMP",
    "FET-08": "FET-18 RET-07",
    "FET-15": "CFG-09",
    "FET-18": "FET-09 FET-14 FET-20 FSS EPO IDM TXN TXV RET CMP TOP-19 ACK-12",
    "GRP-07": CLASSIC,
    "OFF-02": "OFF-16 TXV-08 TXV-09 TXV-17 TXV-18 GAD-04 GAD-11",
    "OFF-07": "OFF-03",
    "OFF-08": "OFF-26",
    "OFF-14": "CGH-21",
    "OFF-10": "OFF-11 OFF-22",
    "TXN-07": "TXN-43",
    "TXV-02": "FET-14 TXN-14",
    "FSS-01": "FET-06",
    "FSS-02": "FSS",
    "TXV-04": "FET-22 TXN-12 TXN-14 TXN-30 TXN-31",
    "TXN-08": "TXN-06 TXN-14 TXN-15 TXN-20 TXN-23",
    "TXN-11": "TXN-14",
    "TXN-14": "TXN-18 TXN-20 TXN-22 TXN-28 TXN-31 TXN-32 TXN-33 TXN-40 TXN-41 TXV",
    "TXN-22": TRANSACTIONS,
    "TXV-08": "TXV-09 TXV-17 TXV-18 TXN-18 OFF-29",
    "TXV-09": "TXV-18",
    "CGH-07": "CGH-02 CGH-28",
    "GAD-01": "GAD-09",
    "GAD-02": "GAD-07 GAD-09 GAD-10",
    "TOP-11": "PRD-07 PRD-08 PRD-13 PRD-14 ACK-10 ACK-11 FET-13 TOP-20 CFG RET CMP",
    "TOP-16": "MET-06 MET-09 FET-11 OFF-16 OFF-19 CGH-24 CGH-26 TXV-21",
    "TXN-02": "TXV-12",
    "TXV-05": "TXN-44",
    "GAD-09": "GAD-07",
    "GAD-03": "GAD-11 GAD-12 GAD-13",
    "GAD-04": "GAD-07 GAD-11 GAD-13",
    "TOP-04": "TOP-09 TOP-12 TOP-17",
    "CFG-01": "CFG",
    "CFG-03": "CFG-04 CFG-05 CFG-06 CFG-08 CFG-09 CFG-13 CGH-31 RET-04",
    "CFG-05": "CFG-06 CFG-08",
    "CGH-20": CONSUMERS,
    "CGH-18": CONSUMERS,
}  # fmt: skip
"""Requirement -> areas and requirements that build on it."""


@cache
def dependencies_of(id: str) -> tuple[str, ...]:
    """What a requirement builds on."""
    above = takewhile(lambda used: used != id, USED_BY)
    by_area = {used for used in above if id[:3] in USED_BY[used].split()}
    return tuple(used for used, users in USED_BY.items() if used in by_area or id in users.split())
