"""What may be wrong with security properties."""


class WrongSecurity(ValueError):
    """A property that cannot be served; the text names it and never has a secret."""
