"""Access control lists and the rule that decides by them, without a socket or a clock."""
