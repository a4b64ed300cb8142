"""The deliberate bugs as patches: each can stand where it is put."""

import inspect
import re
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.caught_at import CAUGHT_AT, CAUGHT_BY
from tests.simulation.checkers import CHECKERS
from tests.simulation.planting import UNHUNTED, patches_of, planted
from tests.simulation.rot_bugs import ROT_BUGS

README = Path(__file__).parent / "README.md"
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


@pytest.mark.parametrize("name", [*BUGS, *UNHUNTED])
def test_a_patch_takes_every_call_of_what_it_replaces(name: str) -> None:
    """One that does not breaks the product at large, which any checker sees."""
    for target, attribute, substitute in patches_of(name):
        real = getattr(target, attribute)
        assert callable(substitute) == callable(real)
        if callable(real):
            parameters = inspect.signature(real).parameters.values()
            positional = [p.name for p in parameters if p.kind not in _BY_NAME]
            named = {p.name: p.name for p in parameters if p.kind in _BY_NAME}
            inspect.signature(substitute).bind(*positional, **named)


@pytest.mark.parametrize("name", [*BUGS, *UNHUNTED])
def test_a_patch_stands_in_place_of_the_real_code_while_it_is_planted(name: str) -> None:
    places = [(target, attribute) for target, attribute, _ in patches_of(name)]

    def there() -> list[object]:
        return [inspect.getattr_static(target, attribute) for target, attribute in places]

    before = there()
    with planted(name):
        assert all(one is not other for one, other in zip(before, there(), strict=True))
    assert there() == before


def test_the_page_has_a_row_for_every_bug_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", README.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted([*BUGS, *ROT_BUGS])
    assert CAUGHT_AT.keys() | CAUGHT_BY.keys() <= BUGS.keys()
    assert set(CAUGHT_BY.values()) <= CHECKERS.keys()
