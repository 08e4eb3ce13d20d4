"""A rewriting proxy in front of a sound broker, which plants one divergence (a *lie*) at the wire.

    python -m linearizability.mutants.wire list
    tidegauge run --target "exec:python -m linearizability.mutants.wire adapter produce-base-offset-plus-one"
    tidegauge bench suite --json                             # all lies before the conformance suite
    python -m linearizability.mutants.wire restricted        # sound brokers that serve less: `restricted.py`

`proxy.py` moves bytes and knows no lie. `rewriting.py` has what lies are made of. `records.py`, `groups.py`,
`transactions.py`, `administration.py`, `security.py` and `framing.py` are the tables, `chance.py` the random rewritings.
"""
