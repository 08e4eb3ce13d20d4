"""The requirements that others build on. A requirement that fails together with one it builds on is *blocked* by that one.

`requires` in a record names what must hold before a requirement can be judged at all. The dependencies here are only steps of
its test, for instance the offsets at which it reads. So the requirement is judged in any case, and a pass counts. The failed
step that a helper names (`broker.built_on`) has precedence.

Each pair was observed: a lie at the wire (`tidegauge bench suite`) that only the first requirement is about fails both. A
wider row would hide one defect of a broker behind another.

Rows hold areas and single requirements. An area means its requirements without a row above, so that no two build on each other.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile

USED_BY = {
    "API-01": "API-02 API-05 API-07 FRM-12",
    "API-04": "API-11",
    "FRM-12": "API-02 API-03 API-04 API-10",
    "COO-01": "BAS-07 BAS-08 BAS-10 BAS-11 GRP-46 CGH-22 CGH-23 CGH-31",
    "BAS-03": "PRD-17 ACK-01 FSS-01 FSS-08 TOP-18 TOP-19 CMP-02",
    "BAS-04": "ACK-12 ACK-15 FET-09 FET-14 FET-20 FSS-03 FSS-06 EPO-03 TXN-12 TXV-16 RET-07 CMP-02 TOP-19",
    "ACK-15": "PRD-29 TXN-16",
    "ACK-17": "HIS-12",
    "PRD-29": "PRD-08 PRD-09 PRD-10 PRD-14 TXN-18",
    "QTA-08": "QTA-19",
    "MET-08": "ELE-02",
    "ELE-14": "ELE-05",
    "QTA-30": "QTA-31",
    "FET-02": "FET-07 FET-23",
    "FET-04": "FET-05 FET-06 FET-07",
    "FET-09": "FSS-10",
    "BAS-13": "ACK-13 FSS-06 IDM-16 TXV-14 TOP-19 TOP-20 CMP-07",
    "GRP-06": "GRP-07 GRP-08 BAS-07 GRP-16 GRP-20 GRP-28 GRP-30 GRP-32 GRP-33 GRP-47",
    "GRP-19": "GRP-08 GRP-39 GAD-04",
    "GRP-08": "BAS-07 GRP-10 GRP-14 GRP-16 GRP-23 GRP-29 GRP-31 GRP-32 GRP-33 GRP-40 GRP-49 OFF-09 GAD-04 GAD-07 GAD-10",
    "BAS-07": "GRP-05 GRP-14 GRP-16 GRP-23 GRP-29 GRP-32 GRP-39 GRP-40 GAD-07 GAD-10",
    "BAS-05": "LOF-13 LOF-11 CMP-10",
    "LOF-03": "LOF-12",
    "MET-01": "MET-12",
    "MET-03": "MET-18",
    "PRD-01": "TOP-16 PRD-27 PRD-29",
    "PRD-05": "PRD-26 PRD-27",
    "FET-11": "FET-21 FET-23",
    "OFF-05": "OFF-01 OFF-03 COO-08",
    "FMT-01": "FMT-03 FMT-04 FMT-05 FMT-06",
    "BAS-08": "OFF OFF-05 TXV-08 TXV-09 TXV-17 TXV-18 CGH-14 CGH-17 CGH-40 GAD-03 GAD-04 GAD-07 GAD-11 GAD-12 GRP-25 GRP-27 "
    "HIS-10",
    "IDM-01": "IDM-05",
    "IDM-09": "IDM-08",
    "TXN-01": "BAS-10 FET-22 TXN-05 TXN-11 TXN-20 TXN-22 TXN-28 TXN-29 TXN-33 TXV-09 OFF-17",
    "BAS-10": "TXN-31 TXN-35 TXN-40 TXN-41 TXV-01",
    "MET-07": "TOP-17",
    "ACK-01": "FSS-01 FSS-08 TOP-18 TOP-19 CMP-02",
    "FET-10": "FSS-05 FET-18 TXV-16",
    "FET-06": "FET-21",
    "FET-08": "FET-18 RET-07",
    "FET-14": "TXV-14",
    "FET-15": "CFG-09 TXV-07",
    "TXV-01": "TXV-07",
    "API-05": "CGH-18",
    "FET-18": "FET-09 FET-14 FET-20 FSS-03 FSS-06 EPO-03 ACK-12 TXN-12 RET-07 CMP-02 TOP-19",
    "GRP-01": "OFF-23",
    "GRP-04": "GRP-17",
    "GRP-33": "GRP-37",
    "GRP-07": "GRP-43",
    "GRP-11": "GRP-15 GRP-38",
    "GRP-12": "OFF-25",
    "GRP-14": "GRP-42 GRP-47",
    "OFF-02": "OFF-16 TXV-08 TXV-09 TXV-18 GAD-04 GAD-11",
    "OFF-08": "OFF-26",
    "OFF-14": "CGH-21",
    "OFF-10": "OFF-11 OFF-22",
    "TXN-07": "TXN-43",
    "TXV-02": "FET-14 TXV-07 TXV-13 TXV-16 TXV-21",
    "FSS-01": "FET-06 FSS-10",
    "ACK-02": "ACK-03",
    "ACK-03": "ACK-16",
    "PRD-13": "PRD-28 CFG-09",
    "FSS-02": "FSS-03 FSS-05 FSS-06 FSS-07 FSS-08 FSS-09 FSS-10 FSS-11 FSS-13",
    "TXV-04": "FET-22 TXN-30",
    "TXN-08": "TXN-14",
    "TXN-11": "TXN-14",
    "TXN-12": "TXN-14",
    "TXN-14": "TXN-22 TXN-28 TXN-31 TXV-02 TXV-04 TXV-09",
    "TXN-22": "TXN-04 TXN-09 TXN-18 TXN-28 TXN-31 TXN-35 TXN-40 TXN-43",
    "TXV-08": "TXN-18 TXV-09 TXV-17 TXV-18 OFF-29",
    "TXV-09": "TXV-18",
    "CGH-07": "CGH-02 CGH-28",
    "GAD-01": "GAD-09",
    "GAD-02": "GAD-07 GAD-09",
    "TOP-11": "CFG-04 TOP-09",
    "TOP-13": "ACK-09 FET-13 FET-18 PRD-25",
    "TOP-16": "MET-06 FET-11 OFF-16 CGH-26",
    "TXN-02": "TXV-12 TXN-15 TXN-24 TXN-48",
    "TXV-05": "TXN-12 TXN-44",
    "GAD-09": "GAD-07",
    "GAD-03": "GAD-11",
    "GAD-04": "GAD-07",
    "TOP-04": "TOP-09 TOP-12",
    "CFG-01": "CFG-11 CFG-12",
    "CFG-03": "CFG-04 CFG-05 CFG-06 CFG-08 CFG-13 CGH-31 RET-04",
    "CFG-05": "CFG-06",
    "CGH-20": "CGH-39",
    "CGH-41": "CGH-08 CGH-22",
    "GRP-26": "GRP-48",
    "RET-01": "RET-04",
    "RET-02": "RET-03",
    "ACK-10": "RET-05",
    "CMP-10": "CMP-01 CMP-02 CMP-03 CMP-04 CMP-05 CMP-06 CMP-07 CMP-08",
    "TXN-06": "TXN-23",
    "CGH-18": "CGH-06 CGH-11 CGH-14 CGH-17 CGH-19 CGH-34 CGH-39 CGH-40 GAD-05 GAD-14",
}
"""Requirement -> the areas and requirements that build on it."""


@cache
def dependencies_of(id: str) -> tuple[str, ...]:
    """The requirements that this one builds on."""
    above = takewhile(lambda used: used != id, USED_BY)
    by_area = {used for used in above if id[:3] in USED_BY[used].split()}
    return tuple(used for used, users in USED_BY.items() if used in by_area or id in users.split())
