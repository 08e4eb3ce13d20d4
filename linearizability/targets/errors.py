"""Errors of a target itself."""


class TargetError(Exception):
    """The target could not be started, reached or hurt: an engine error, never a failure of the broker under judgement."""


class WrongTarget(TargetError, ValueError):
    """The target's specification is wrong."""
