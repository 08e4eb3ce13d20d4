"""Quotas of clients: for which one is set, what it measures, how long a client must wait; without a socket or a clock."""
