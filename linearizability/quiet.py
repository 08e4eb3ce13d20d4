"""Whether progress is to be said: `tidegauge --quiet COMMAND`, or TIDEGAUGE_QUIET=1, says results and errors alone."""

import os

VARIABLE = "TIDEGAUGE_QUIET"


def quiet() -> bool:
    """Whether results and errors alone are to be said. Child processes inherit it."""
    return os.environ.get(VARIABLE, "") not in ("", "0")
