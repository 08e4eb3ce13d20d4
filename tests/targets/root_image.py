"""A root file system for images, where no registry is: this machine's Python with pip, a shell, and the libraries of both."""

import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

PROGRAMS = ("sh", "mkdir", "cp", "rm")
"""Beside Python, what the image's Dockerfile and compose.yaml run."""
LIBRARIES = tuple(
    f"lib{name}" for name in ("dl.so.2", "gcc_s.so.1", "pthread.so.0", "rt.so.1", "stdc++.so.6", "util.so.1")
)
"""What wheels for Linux expect of a machine (PEP 599)."""
APT_GET = b'#!/bin/sh\necho "$@" >> /apt-get\n'
"""Stands for Debian's program, which would need the network: notes what it is asked for."""
LEFT_OUT = ("test", "__pycache__", "site-packages", "dist-packages", "lib2to3", "idlelib", "tkinter", "ensurepip")


def root_file_system() -> bytes:
    """A tar, for `docker import`."""
    standard = Path(sys.base_prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    python = Path(sys.executable).resolve()
    pip = find_spec("pip")
    assert pip is not None and pip.origin is not None, "pip is not installed"
    programs = [Path(path) for name in PROGRAMS if (path := shutil.which(name))]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(python, "usr/local/bin/python3")
        tar.add(standard, f"usr/local/lib/{standard.name}", filter=_is_needed)
        tar.add(Path(pip.origin).parent, f"usr/local/lib/{standard.name}/pip", filter=_is_needed)
        for program in programs:
            tar.add(program.resolve(), f"usr/bin/{program.name}")
        for library in _libraries([python, *programs, *standard.glob("lib-dynload/*.so")]):
            tar.add(library.resolve(), str(library).lstrip("/"))
        for entry in _entries():
            tar.addfile(entry, io.BytesIO(APT_GET))
    return buffer.getvalue()


def _is_needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(entry.name).name
    return None if name in LEFT_OUT or name.startswith("config-") else entry


def _entries() -> Iterator[tarfile.TarInfo]:
    temporary, link, program = (tarfile.TarInfo(name) for name in ("tmp", "bin", "usr/bin/apt-get"))
    temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
    link.type, link.linkname = tarfile.SYMTYPE, "usr/bin"
    program.size, program.mode = len(APT_GET), 0o755
    yield from (temporary, link, program)


def _libraries(files: Iterable[Path]) -> set[Path]:
    """What the dynamic loader finds for these, and for what wheels expect."""
    linked = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    expected = [line for line in known.splitlines() if line.split(" ")[0].strip() in LIBRARIES]
    return {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+)", "\n".join([linked, *expected]), re.M)}
