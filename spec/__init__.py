"""The TLA+ specification of the replicated log, and the machine that checks it with TLC."""
