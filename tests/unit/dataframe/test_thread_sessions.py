"""Sessions work without thread sessions where these are not possible."""

import logging
from types import SimpleNamespace

import pytest

from sparklog.dataframe import thread_sessions
from tests.support.logged import messages_of


def test_spark_connect_needs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    connect = SimpleNamespace()
    with caplog.at_level(logging.INFO):
        assert thread_sessions.install(connect) is False
        thread_sessions.activate(connect)
    assert messages_of(caplog, thread_sessions) == []


def test_a_spark_that_lacks_what_is_needed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = thread_sessions.install(SimpleNamespace(sparkContext=SimpleNamespace()))
    assert found is False
    assert messages_of(caplog, thread_sessions) == [
        "write to topics from the main thread, or by cluster.write: "
        "'types.SimpleNamespace' object has no attribute '_gateway'"
    ]
