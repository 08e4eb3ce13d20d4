"""The health checks of Hypothesis that searches switch off, which may take long."""

from hypothesis import HealthCheck

UNCHECKED = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
)
