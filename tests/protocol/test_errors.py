"""Error codes by name."""

from reference.protocol.errors import ErrorCode, name_of


def test_codes_have_names_and_unknown_ones_are_numbers() -> None:
    assert name_of(6) == name_of(ErrorCode.NOT_LEADER_OR_FOLLOWER) == "NOT_LEADER_OR_FOLLOWER(6)"
    assert name_of(-1) == "UNKNOWN_SERVER_ERROR(-1)"
    assert name_of(9999) == "error 9999"
