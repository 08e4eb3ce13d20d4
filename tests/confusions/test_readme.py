"""The page and the tests agree: every confusion has its test, of the same name, and every test its confusion."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
CONFUSION = re.compile(r"^## (?P<heading>.+)$(?P<body>(?:\n(?!#).*)*)", re.MULTILINE)
SHOWN_BY = re.compile(r"^Shown by `(test_\w+\.py)::(test_\w+)`$", re.MULTILINE)


def test_every_confusion_has_its_test_and_every_test_its_confusion() -> None:
    page = (HERE / "README.md").read_text()
    described: list[tuple[str, str]] = []
    for found in CONFUSION.finditer(page):
        ((file, test),) = SHOWN_BY.findall(found["body"])
        assert test == "test_" + re.sub(r"\W+", "_", found["heading"].lower())
        assert "\nInstead" in found["body"], f"{found['heading']}: and what instead?"
        described.append((file, test))
    assert sorted(described) == sorted(names_of_tests())
    assert len(described) == len(SHOWN_BY.findall(page))


def names_of_tests() -> list[tuple[str, str]]:
    return [
        (file.name, node.name)
        for file in HERE.glob("test_*.py")
        if file != Path(__file__)
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
