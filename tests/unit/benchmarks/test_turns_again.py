"""Turns that Kafka's producer gave up are taken again; all other failures are told."""

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from benchmarks.kafka_dataframes import ATTEMPTS, again_if_expired

EXPIRED = "org.apache.kafka.common.errors.TimeoutException: Expiring 148 record(s) for t-0"


class JavaError(Py4JJavaError):  # type: ignore[misc]
    """What comes from the JVM, without one."""

    def __init__(self, text: str) -> None:
        self.java_exception = text

    def __str__(self) -> str:
        return str(self.java_exception)


def turns(*outcomes: Any) -> Any:
    left = list(outcomes)

    def turn() -> tuple[float]:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return (outcome,)

    return turn


def test_a_turn_that_kafka_gave_up_is_taken_again() -> None:
    said: list[str] = []
    failed = JavaError(f"Job aborted\n{EXPIRED}\nat x")
    assert again_if_expired(turns(failed, 2.0), said.append) == (2.0,)
    assert said == [EXPIRED]


def test_it_is_given_up_in_the_end() -> None:
    said: list[str] = []
    with pytest.raises(JavaError):
        again_if_expired(turns(*[JavaError(EXPIRED)] * ATTEMPTS, 2.0), said.append)
    assert len(said) == ATTEMPTS - 1


def test_other_failures_are_told_at_once() -> None:
    with pytest.raises(JavaError, match="disk full"):
        again_if_expired(turns(JavaError("disk full"), 2.0), print)
