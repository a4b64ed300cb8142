"""Where the rule cannot be installed, reads go on without it."""

import logging
from types import SimpleNamespace

import pytest

from sparklog.dataframe import own_scans


class Context(SimpleNamespace):
    """A Spark context without a JVM; hashable, as contexts are."""

    __hash__ = object.__hash__


def test_a_session_without_a_jvm_has_no_rule() -> None:
    assert own_scans.install(SimpleNamespace()) is False


def test_a_spark_that_lacks_what_the_rule_needs_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert own_scans.install(SimpleNamespace(sparkContext=Context())) is False
    assert [record.message for record in caplog.records] == [
        "filters on topics are not pushed down: 'Context' object has no attribute '_jvm'"
    ]
