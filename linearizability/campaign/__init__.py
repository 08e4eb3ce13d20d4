"""Nights of simulated runs by one plan: the series, the table of their results, and the report of all nights."""
