"""Reads `sasl.jaas.config`: one login module with its options (javax.security.auth.login.Configuration)."""

from __future__ import annotations

import re

from reference.security.errors import WrongSecurity

LOGIN = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\s*(?P<options>.*?);\s*", re.DOTALL
)
OPTION = re.compile(r'\s*([\w.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


def read_login(text: str) -> tuple[str, dict[str, str]]:
    """The module's class and its options. Errors: WrongSecurity, whose message does not contain the text."""
    if not (found := LOGIN.fullmatch(text)):
        raise WrongSecurity('sasl.jaas.config is not: LOGIN-MODULE required NAME="VALUE" ...;')
    options, at = dict[str, str](), 0
    given = found["options"].rstrip()
    while at < len(given):
        if not (option := OPTION.match(given, at)):
            raise WrongSecurity(f'sasl.jaas.config: option {len(options) + 1} is not NAME="VALUE"')
        name, quoted, bare = option.groups()
        options[name] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
        at = option.end()
    return found["module"], options
