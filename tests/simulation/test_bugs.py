"""The deliberate bugs as patches: each can stand where it is put."""

import inspect
import re
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.caught_at import CAUGHT_AT
from tests.simulation.rot_bugs import ROT_BUGS

README = Path(__file__).parent / "README.md"
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


@pytest.mark.parametrize("name", BUGS)
def test_a_patch_takes_every_call_of_what_it_replaces(name: str) -> None:
    """One that does not breaks the product at large, which any checker sees."""
    for target, attribute, substitute in BUGS[name]():
        real = getattr(target, attribute)
        assert callable(substitute) == callable(real)
        if callable(real):
            parameters = inspect.signature(real).parameters.values()
            positional = [p.name for p in parameters if p.kind not in _BY_NAME]
            named = {p.name: p.name for p in parameters if p.kind in _BY_NAME}
            inspect.signature(substitute).bind(*positional, **named)


def test_the_page_has_a_row_for_every_bug_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", README.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted([*BUGS, *ROT_BUGS])
    assert CAUGHT_AT.keys() <= BUGS.keys()
