"""What may go wrong on the way into a secured broker."""

from linearizability.targets.errors import WrongTarget


class SecurityError(WrongTarget):
    """A property that cannot be served, a handshake or an authentication that failed. The text never has a secret."""
