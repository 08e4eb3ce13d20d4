"""What a principal may do: access control lists and the rule that decides by them, without a socket or a clock."""
