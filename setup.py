"""The package is described in pyproject.toml. This adds one thing: a wheel holds nothing that an earlier build has left.

Setuptools keeps `build/lib` and copies everything in it. A module that was renamed since would be in the wheel twice.
"""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildAfresh(build_py):
    """Copies the modules into an empty folder."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": BuildAfresh})
