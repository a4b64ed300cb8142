"""Where Spark does not take what we give its sessions, reads and writes go on without it."""

import logging
from types import ModuleType, SimpleNamespace

import pytest

from sparklog.dataframe.jvm import own_scans, packed_reads, packed_writes
from tests.support.logged import messages_of

WITHOUT = {
    own_scans: "filters on topics are not pushed down",
    packed_reads: "rows are made by Python",
    packed_writes: "writes are not packed in the JVM",
}


class Context(SimpleNamespace):
    """A Spark context without a JVM; hashable, as contexts are."""

    __hash__ = object.__hash__


@pytest.mark.parametrize("extension", WITHOUT)
def test_a_session_without_a_jvm_takes_none(extension: ModuleType) -> None:
    assert extension.install(SimpleNamespace()) is False


@pytest.mark.parametrize("extension", WITHOUT)
def test_a_spark_that_lacks_what_it_needs_is_told(
    extension: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert extension.install(SimpleNamespace(sparkContext=Context())) is False
    assert messages_of(caplog, extension) == [
        f"{WITHOUT[extension]}: 'Context' object has no attribute '_jvm'"
    ]
