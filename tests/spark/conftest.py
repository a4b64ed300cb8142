"""One Spark session and one cluster for all tests of DataFrames.

A process has one Spark context, and the launcher's tests make contexts of their own, so the shared
one ends before every module that did not ask for it (``SHARES_CLUSTER = True``).
"""

from collections.abc import Iterator

import pytest

from tests.spark.dataframe_rig import Rig, SharedRig


@pytest.fixture(scope="session")
def shared_rig() -> Iterator[SharedRig]:
    shared = SharedRig()
    yield shared
    shared.close()


@pytest.fixture(scope="module", autouse=True)
def _one_context_at_a_time(request: pytest.FixtureRequest, shared_rig: SharedRig) -> None:
    if not getattr(request.module, "SHARES_CLUSTER", False):
        shared_rig.close()


@pytest.fixture
def rig(shared_rig: SharedRig) -> Rig:
    return shared_rig.get()
