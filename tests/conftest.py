"""How Hypothesis draws: no deadlines, for a busy machine breaks them; and in CI the same examples every time.

A run of CI judges a change, not the luck of the day. `make test` by hand and `make test-slow` draw anew each time: what they
find becomes a test of its own.
"""

import os

from hypothesis import settings

settings.register_profile("anew", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "anew")
