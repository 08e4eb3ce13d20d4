"""Clients' patterns: RE2's syntax, whole matches, and a bound on the steps of every pattern. (CGH-16, TXN-42)

The expectations are the results of RE2/J, which Kafka uses.
"""

import pytest

from reference.coordinator.pattern_matching import MAX_STATES, compile_pattern
from reference.coordinator.pattern_syntax import MAX_LENGTH
from reference.protocol.errors import ErrorCode, KafkaError

MATCHES = [
    ("foo", "foo", True),
    ("foo", "foo-1", False),
    ("fo", "foo", False),
    ("foo.*", "foo-1", True),
    ("foo|bar", "bar", True),
    ("(foo|bar)-[0-9]+", "bar-12", True),
    ("", "a", False),
    ("a{2,3}", "aa", True),
    ("a{2,3}", "aaaa", False),
    ("a{2,}", "aaaa", True),
    ("(?i)foo", "FoO", True),
    ("(?i:f)oo", "Foo", True),
    ("(?i:f)oo", "FOO", False),
    ("a(?i)b|c", "C", True),
    (r"\w+\.\d", "a_b.7", True),
    (r"\D+", "a1", False),
    ("[^a-c]+", "xyz", True),
    ("[^a-c]+", "xbz", False),
    ("[[:upper:]]+", "ABC", True),
    ("[[:^upper:]]+", "ABC", False),
    ("[]a]+", "aa", True),
    (r"[a\-z]+", "a-z", True),
    (r"\p{Lu}+", "AB", True),
    (r"\PL+", "1.2", True),
    (r"\p{Greek}*", "a", False),
    (r"^a$", "a", True),
    (r"a^b", "ab", False),
    (r"foo\b.*", "foo-1", True),
    (r"foo\b.*", "foo_1", False),
    (r"foo\B.*", "foo_1", True),
    (r"\Qa.b\E", "a.b", True),
    (r"\Qa.b\E", "axb", False),
    (r"\x61\x{62}\143", "abc", True),
    ("(?P<n>a)(?<m>b)", "ab", True),
    ("a{,2}", "a", False),
    (".*", "__consumer_offsets", True),
    ("(|a)*b", "aab", True),
    (".+", "äöü", True),
    (r"\w+", "äöü", False),
    (r"\pL+", "äöü", True),
    (r"\p{Latin}+", "äöü", True),
    (r"\p{Greek}+", "αβγ", True),
    (r"\p{Greek}+", "äöü", False),
    (r"\p{Common}+", "1-2", True),
    ("(?i)ÄÖ", "äö", True),
    ("[^a]", "ä", True),
    (r"a\b.", "aä", True),
    ("a.b", "a\nb", False),
    ("(?s)a.b", "a\nb", True),
    ("(?s:a.)b.", "a\nb\n", False),
    ("a[^x]b", "a\nb", True),
    ("a$\n^b", "a\nb", False),
    ("(?m)a$\n^b", "a\nb", True),
    ("(?m-m)a$\n^b", "a\nb", False),
    (r"\pN\PN", "1\U0001f600", True),
]


@pytest.mark.parametrize(("pattern", "name", "matches"), MATCHES)
def test_what_matches(pattern: str, name: str, matches: bool) -> None:
    assert compile_pattern(pattern).matches(name) is matches


def test_a_list_of_names_is_a_pattern() -> None:
    names = [f"company.department-{number:03}.events.orders" for number in range(200)]
    regex = compile_pattern("|".join(names))
    assert all(regex.matches(name) for name in names)
    assert not regex.matches(names[0] + "s")


WRONG = {
    "foo(": "missing closing )",
    "foo)": "unexpected )",
    "[a": "missing closing ]",
    "*a": "missing argument to repetition operator",
    "a**": "invalid nested repetition operator",
    "a{2}{3}": "invalid nested repetition operator",
    "a{1001}": "invalid repeat count",
    "a{3,2}": "invalid repeat count",
    "(a{100}){100}": "invalid repeat count",
    "[b-a]": "invalid character class range",
    "[[:foo:]]": "invalid character class range",
    "a\\": "trailing backslash at end of expression",
    r"\1": "invalid escape sequence",
    r"\Z": "invalid escape sequence",
    "(?=a)": "invalid or unsupported Perl syntax",
    "(?P<n>a)(?P<n>b)": "duplicate capture group name",
    "(?P<>a)": "invalid named capture",
    "(" * 200 + ")" * 200: "expression nests too deeply",
    "a" * (MAX_LENGTH + 1): "expression too large",
    f"({'a' * (MAX_STATES // 1000 + 1)}){{1000}}": "expression too large",
    "a++": "invalid nested repetition operator",
    "(?>a)": "invalid or unsupported Perl syntax",
    "(?#a)": "invalid or unsupported Perl syntax",
}


@pytest.mark.parametrize(("pattern", "why"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_no_pattern(pattern: str, why: str) -> None:
    with pytest.raises(KafkaError) as refused:
        compile_pattern(pattern)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (refused.value.message or "").endswith(f": {why}.")


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+b", "(.*)*(.*)*(.*)*b", "(a?){100}a{100}b"])
def test_a_pattern_that_would_backtrack_for_ever_takes_a_few_steps_a_character(pattern: str) -> None:
    regex = compile_pattern(pattern)
    assert not regex.matches("a" * 249)
    assert len(regex._steps) <= 2 * 249
