"""Client quotas: their entities, their measurement, and throttle times; without a socket or a clock."""
