"""Histories of other tools, each module one form. `IMPORTERS` names them; `detect_foreign` knows them by their first lines."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linearizability.history.contract import Contract
    from linearizability.history.paired import EventStream

Importer = Callable[[Path, "Contract"], "list[EventStream]"]
"""The streams of a file's, or a folder's, one history. They declare no contract; the given one counts."""


def _importer(module: str, function: str) -> Importer:
    return lambda path, given: getattr(import_module(f"{__name__}.{module}"), function)(path, given)


IMPORTERS: dict[str, Importer] = {
    "jepsen": _importer("jepsen", "streams"),
    "knossos": _importer("registers", "edn_streams"),
    "jepsen-log": _importer("registers", "log_streams"),
    "verifiable": _importer("verifiable", "streams"),
}


def detect_foreign(first: bytes, document: Any) -> str | None:
    """The importer for a file that begins with the lines `first` (`document` where the first one is JSON)."""
    from linearizability.history.importers.verifiable import NAMES

    if isinstance(document, dict) and document.get("name") in NAMES:
        return "verifiable"
    text = first.decode(errors="replace").strip()
    if "jepsen.util - " in text:
        return "jepsen-log"
    if text.startswith(("{", "[", "(", "#")) and ":process" in text:
        registers = any(f":f {name}" in text for name in (":read", ":write", ":cas", ":get", ":put", ":append"))
        return "knossos" if registers else "jepsen"
    return None
