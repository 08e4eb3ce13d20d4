"""A rewriting proxy in front of a correct broker, which plants one divergence (a *lie*) in its requests or responses.

    python -m linearizability.mutants.wire list
    tidegauge run --target "exec:python -m linearizability.mutants.wire adapter produce-base-offset-plus-one"
    tidegauge bench suite --json                             # all lies before the conformance suite
    python -m linearizability.mutants.wire restricted        # correct brokers that serve less: `restricted.py`

`proxy.py` moves bytes without any lie. `rewriting.py` has the parts of lies. `records.py`, `groups.py`, `transactions.py`,
`administration.py`, `security.py` and `framing.py` are the tables of lies, `chance.py` the random rewritings.
"""
