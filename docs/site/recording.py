"""`python -m docs.site.recording`: record the run that the README shows, a real one, as docs/recording.svg."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).resolve().parents[1] / "recording.svg"
ADAPTER = "exec:python -m linearizability.mutants adapter acknowledged-without-append"
COMMAND = f'tidegauge run --target "{ADAPTER}" ACK-01 ACK-02'
WIDTH = 104


def record() -> str:
    """The command and what it prints, in colour."""
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tidegauge", *shlex.split(COMMAND)[1:]]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    return f"$ {COMMAND}\n{done.stdout}$ echo $?\n{done.returncode}"


def picture(text: str) -> str:
    """The text as SVG, which needs no other file."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(text), soft_wrap=False)
        drawn = console.export_svg(title="tidegauge", unique_id="recording")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.S)


if __name__ == "__main__":
    PICTURE.write_text(picture(record()))
    print(PICTURE)
