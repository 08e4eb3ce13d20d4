"""All lies by name."""

from linearizability.mutants.wire import administration, framing, groups, records, security, transactions
from linearizability.mutants.wire.rewriting import Lie

TABLES = (framing.LIES, records.LIES, transactions.LIES, groups.LIES, administration.LIES, security.LIES)
LIES: dict[str, Lie] = {lie.name: lie for table in TABLES for lie in table}

if len(LIES) < sum(map(len, TABLES)):
    raise ValueError("two lies have the same name")
