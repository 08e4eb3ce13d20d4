"""Examples may take as long as a busy machine lets them."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
