"""PyPy, which runs the reference several times as fast as CPython once it is warm: found on this machine, or fetched.

    pypy()                                       # the path of a program that runs `-m tidegauge serve` and simulated runs
    python -m linearizability.targets.pypy       # the same from a shell: fetch it, and print its path

The program is a small script in the cache. It starts a PyPy of Python 3.11: the one that TIDEGAUGE_PYPY names, else `pypy3`
of PATH, else Debian's package, which apt fetches, verifies, and unpacks into the cache beside the libraries that it needs; it
needs no root, and changes nothing else on the machine. The packages that the reference needs there are pinned in
`pypy_packages.txt` (`make lock`): the newest releases whose wheels for PyPy 7.3.19 can be loaded.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from linearizability.targets.artifacts import cache_folder
from linearizability.targets.errors import TargetError

__all__ = ["ENVIRONMENT", "PyPyMissing", "pypy"]

ENVIRONMENT = {
    "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    "PYPY_GC_NURSERY": "8MB", "PYPY_GC_MIN": "120MB", "PYPY_GC_INCREMENT_STEP": "1MB",
}  # fmt: skip
"""PyPy's path to this project, and its garbage collection in a node: seldom, because most objects are short-lived, and in
short steps, because requests wait meanwhile. Three nodes took 2,600 batches of 60 KB a second (p99 6 ms, 830 MB in memory);
with PyPy's own settings 2,050 (16 ms, 600 MB)."""
PACKAGES = Path(__file__).with_name("pypy_packages.txt")
NAMED_BY = "TIDEGAUGE_PYPY"
WITHIN_S = 600

SUITE = "trixie"
"""The Debian release whose pypy3 is of Python 3.11."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEBIAN_PACKAGES = (
    "pypy3", "pypy3-lib", "libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1", "libgdbm6t64", "liblzma5",
    "libncursesw6", "libsqlite3-0", "libssl3t64", "libtinfo6", "libzstd1", "zlib1g",
)  # fmt: skip

WHOLE = """\
#!/bin/sh
here=$(dirname "$0")
export PYTHONPATH="$here/packages${PYTHONPATH:+:$PYTHONPATH}"
"""
OWN = 'exec "{program}" "$@"\n'
UNPACKED = """\
exec "$here"/debian/usr/lib64/ld-linux-x86-64.so.2 --argv0 "$0" --library-path "$here/debian/usr/lib/x86_64-linux-gnu" \\
    "$here/debian/usr/bin/pypy3" "$@"
"""
"""Runs PyPy with the C library that it was built for, which may be newer than the machine's."""

VERSION = "import sys; print(sys.implementation.name, *sys.version_info[:2])"


class PyPyMissing(TargetError):
    """There is no PyPy here, and none can be fetched; the text has the reason and the remedy."""


def pypy() -> Path:
    """The path of the program. Fetches and caches the missing parts first (a minute). Errors: PyPyMissing."""
    own = _found_here()
    name = "debian" if own is None else hashlib.sha256(os.fsencode(own)).hexdigest()[:8]
    wanted = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()[:8]
    place = cache_folder().parent / "pypy" / f"{name}-{wanted}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                unfinished = Path(folder) / place.name
                unfinished.mkdir()
                _make(unfinished, own)
                unfinished.rename(place)
    return place / "pypy3"


def _found_here() -> Path | None:
    """The PyPy of this machine; None where there is none. Errors: PyPyMissing where TIDEGAUGE_PYPY names an unsuitable one."""
    named = os.environ.get(NAMED_BY)
    found = shutil.which(named or "pypy3")
    if found and _output([found, "-c", VERSION]).split() == ["pypy", "3", "11"]:
        return Path(found).absolute()
    if named:
        raise PyPyMissing(f"{NAMED_BY} names {named}, which does not run, or is no PyPy of Python 3.11")
    return None


def _make(folder: Path, own: Path | None) -> None:
    if own is None:
        _unpack_debian(folder / "debian")
    program = folder / "pypy3"
    program.write_text(WHOLE + (UNPACKED if own is None else OWN.format(program=own)))
    program.chmod(0o755)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(program))
    options = ("--quiet", "--no-warn-script-location", "--root-user-action=ignore", "--only-binary=:all:")
    target = ("--target", str(folder / "packages"), "--require-hashes", "--requirement", str(PACKAGES))
    _output([*pip, "install", *options, *target])


def _unpack_debian(folder: Path) -> None:
    """Fetch PyPy and its libraries by apt from this machine's mirror, and unpack them. Errors: PyPyMissing."""
    mirror = _mirror()
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for part in ("lists/partial", "archives/partial", "packages"):
            (home / part).mkdir(parents=True)
        (home / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {SUITE} main\n")
        (home / "status").touch()
        settings = {
            "Dir::Etc::sourcelist": home / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::State": home,
            "Dir::State::status": home / "status", "Dir::Cache": home, "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false", "APT::Sandbox::User": "",
        }  # fmt: skip
        apt = ["apt-get", "--quiet", *(f"--option={name}={value}" for name, value in settings.items())]
        _output([*apt, "update"])
        _output([*apt, "download", *DEBIAN_PACKAGES], home / "packages")
        for package in sorted((home / "packages").glob("*.deb")):
            _output(["dpkg-deb", "--extract", str(package), str(folder)])


def _mirror() -> str:
    """The URL of this machine's Debian mirror. Errors: PyPyMissing."""
    otherwise = f"install PyPy of Python 3.11, and name it by {NAMED_BY}"
    if os.uname().machine != "x86_64" or not all(map(shutil.which, ("apt-get", "dpkg-deb"))) or not KEYRING.exists():
        raise PyPyMissing(f"PyPy is fetched on Debian for x86_64 only: {otherwise}")
    sites = _output(["apt-get", "indextargets", "--format", "$(SITE)", "Identifier: Packages"]).split()
    for site in sites:
        if re.search(r"/debian/?$", site):
            return site
    raise PyPyMissing(f"apt knows no mirror of Debian here: {otherwise}")


def _output(command: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints. Errors: PyPyMissing."""
    # The machine's LD_LIBRARY_PATH does not match the other C library.
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PyPyMissing(f"{command[0]}: {error}") from error
    if done.returncode:
        ends = " ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
        raise PyPyMissing(f"{' '.join(command[:3])} failed: {ends}")
    return done.stdout


def main() -> int:
    """Print the program's path, or where there is none, the remedy."""
    try:
        print(pypy())
    except PyPyMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
