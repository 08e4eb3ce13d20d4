"""The packages that the base installation leaves out: it can judge a broker at an address, and serve the reference."""

EXTRAS = {
    **dict.fromkeys(
        ("numpy", "pyarrow", "matplotlib", "hypothesis", "confluent_kafka", "pyroute2", "cryptography"), "check"
    ),
    **dict.fromkeys(("pyspark", "pandas"), "spark"),
}
"""Module -> the extra that installs it."""


def advice(module: str) -> str:
    """How a module that is missing is installed; empty where no extra has it."""
    extra = EXTRAS.get(module.partition(".")[0])
    return f"{module} is missing: pip install 'tidegauge[{extra}]'" if extra else ""
