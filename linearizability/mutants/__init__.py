"""Brokers with one planted bug each: the suite and the simulation must find every one.

    with planted("crc-unchecked"):        # in this process: the simulation
        ...
    python -m linearizability.mutants serve NAME CONFIG      # a whole broker, as `tidegauge serve`
    tidegauge run --target "exec:python -m linearizability.mutants adapter NAME"
    tidegauge fuzz --mutant NAME --until-found

A mutant replaces one named function of `reference`; nothing in `reference` knows of it.
"""
