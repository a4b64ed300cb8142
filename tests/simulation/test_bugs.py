"""The deliberate bugs as patches: each can stand where it is put."""

import inspect

import pytest

from tests.simulation.bugs import BUGS

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
