"""What holds for every test: one clear line instead of many failures where Java is missing."""

import pytest

from sparklog.driver.java import require_java
from sparklog.errors import StartError


def pytest_collection_finish(session: pytest.Session) -> None:
    if not any(item.get_closest_marker("spark") for item in session.items):
        return
    try:
        require_java()
    except StartError as error:
        pytest.exit(f"the Spark tests cannot run: {error}", returncode=1)
