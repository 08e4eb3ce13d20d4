"""Errors of connections to a secured broker."""

from linearizability.targets.errors import WrongTarget


class SecurityError(WrongTarget):
    """An unsupported property, or a failed handshake or authentication. The text never has a secret."""
