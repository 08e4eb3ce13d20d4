"""The rule of commit subjects: `area: what it does`, imperative, at most 72 characters. `.githooks/commit-msg` calls it."""

import re
import sys
from pathlib import Path

LONGEST = 72
SUBJECT = re.compile(r"[a-z][a-z0-9_ ./-]*: \S.*[^.\s]")
BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")
PAST = re.compile(
    r": (added|adds|adding|changed|changes|fixed|fixes|fixing|made|makes|removed|removes|renamed|updated|updates)\b"
)


def mistake(message: str) -> str:
    """What is wrong with the first line of a commit message; empty where nothing is."""
    subject = message.partition("\n")[0]
    if subject.startswith(BY_GIT):
        return ""
    if len(subject) > LONGEST:
        return f"{len(subject)} characters, {LONGEST} are allowed: {subject}"
    if not SUBJECT.fullmatch(subject):
        return f"not `area: what it does`: {subject}"
    return f"not imperative: {subject}" if PAST.search(subject) else ""


if __name__ == "__main__":
    found = mistake(Path(sys.argv[1]).read_text())
    print(found, end="\n" if found else "")
    sys.exit(bool(found))
