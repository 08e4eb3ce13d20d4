"""A night of simulated runs by one plan: its series, the table of what they found, and the report of all nights."""
