"""Compiles the interposer with the system's C compiler, once for each source and compiler."""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from linearizability.targets.artifacts import cache_folder
from linearizability.targets.target import TargetError

SOURCE = Path(__file__).with_name("interposer.c")
COMPILERS = ("cc", "gcc", "clang")
OPTIONS = ("-O2", "-shared", "-fPIC", "-pthread")
COMPILED_WITHIN_S = 60
POINTER_BYTES = 8
TEST_WITHIN_S = 20


def obstacle() -> str:
    """Why this machine has no interposer; empty where it has one. Compiles it."""
    if not sys.platform.startswith("linux") or struct.calcsize("P") != POINTER_BYTES:
        return "disks and clocks are interposed on 64-bit Linux only"
    try:
        library()
    except TargetError as error:
        return str(error)
    return ""


def library() -> Path:
    """The shared object, compiled on first use. Errors: TargetError, which names the packages to install."""
    compiler = _compiler()
    name = hashlib.sha256(SOURCE.read_bytes() + compiler.encode()).hexdigest()[:16]
    built = cache_folder().parent / "interposer" / f"{name}.so"
    if not built.is_file():
        built.parent.mkdir(parents=True, exist_ok=True)
        # Several runs may compile at once, each as process 1 of its own pid namespace.
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            unfinished = Path(folder) / built.name
            _run([compiler, *OPTIONS, "-o", str(unfinished), str(SOURCE)], COMPILED_WITHIN_S)
            # The loader only warns about a library that it cannot load; the faults would then have no effect.
            complaint = _run([sys.executable, "-c", ""], TEST_WITHIN_S, {"LD_PRELOAD": str(unfinished)})
            if complaint:
                raise TargetError(f"the interposer cannot be loaded: {complaint}")
            unfinished.replace(built)
    return built


def _compiler() -> str:
    for name in (os.environ.get("CC", ""), *COMPILERS):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise TargetError(
        "there is no C compiler, by which disks and clocks are interposed: install one (Debian: apt-get install gcc "
        "libc6-dev), or name it by CC"
    )


def _run(command: list[str], within_s: float, environment: dict[str, str] | None = None) -> str:
    """The command's standard error. Errors: TargetError when the command failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=within_s, check=False, env=os.environ | (environment or {})
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"{command[0]}: {error}") from error
    if done.returncode:
        last_lines = " ".join(done.stderr.strip().splitlines()[-3:])
        raise TargetError(f"{command[0]} failed (Debian: apt-get install gcc libc6-dev): {last_lines}")
    return done.stderr.strip()
