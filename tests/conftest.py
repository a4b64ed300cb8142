"""What holds for every test: one clear line instead of many failures where Java is missing, and no
deadline for single examples, because a busy machine is no failure (pytest-timeout ends what hangs).
"""

import pytest
from hypothesis import settings

from sparklog.driver.java import require_java
from sparklog.errors import StartError

settings.register_profile("sparklog", deadline=None)
settings.load_profile("sparklog")


def pytest_collection_finish(session: pytest.Session) -> None:
    if not any(item.get_closest_marker("spark") for item in session.items):
        return
    try:
        require_java()
    except StartError as error:
        pytest.exit(f"the Spark tests cannot run: {error}", returncode=1)
