"""The error for security properties that cannot be used."""


class WrongSecurity(ValueError):
    """A property that cannot be used; the message names it and never contains a secret."""
