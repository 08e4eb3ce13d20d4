"""Each file is counted to a capability, and docs/size.md is not far from today's numbers."""

import re

from tests.repository.size import CAPABILITIES, PAGE, capability_of, count, files


def test_each_file_belongs_to_a_capability_and_each_capability_has_files():
    found = {path: capability_of(path) for path in files()}
    assert [path for path, name in found.items() if not name] == []
    assert {each.name for each in CAPABILITIES} == set(found.values())


def test_the_page_is_written_again_when_much_has_moved():
    """Within a twentieth: run `python -m tests.repository.size --write`."""
    rows = re.findall(r"^\| ([\w ]+) \| [^|]+ \| ([\d,]+) \| ([\d,]+) \|$", PAGE.read_text(), re.M)
    assert {name for name, *_ in rows} == {each.name for each in CAPABILITIES}
    written = sum(int(number.replace(",", "")) for _, *numbers in rows for number in numbers)
    assert abs(written - sum(count().values())) < written / 20
