"""What one module has logged, whatever the threads of earlier tests log meanwhile."""

from types import ModuleType

import pytest


def messages_of(caplog: pytest.LogCaptureFixture, module: ModuleType) -> list[str]:
    """The captured messages of ``module``'s logger, in their order."""
    return [each.getMessage() for each in caplog.records if each.name == module.__name__]
