"""Clients go from task to task, unless something went wrong."""

from collections.abc import Iterator

import pytest

from sparklog.dataframe import clients
from sparklog.dataframe.clients import CLIENTS_MAX, borrowed_client
from sparklog.errors import ConnectError, ErrorCode, KafkaError, SparklogError
from sparklog.types import Endpoint

HERE = (Endpoint("127.0.0.1", 1),)


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    while clients._idle:
        clients._close(clients._idle.popitem()[1])


def test_the_next_borrower_gets_the_same_client() -> None:
    with borrowed_client(HERE, "me", 1.0, "o") as first:
        pass
    with borrowed_client(HERE, "me", 1.0, "o") as second:
        assert second is first
        with borrowed_client(HERE, "me", 1.0, "o") as at_once:
            assert at_once is not first
    with borrowed_client(HERE, "me", 2.0, "o") as more_patient:
        assert more_patient is not first


def test_a_client_is_not_kept_after_an_error() -> None:
    with pytest.raises(ValueError), borrowed_client(HERE, "me", 1.0, "o") as first:
        raise ValueError
    with pytest.raises(ConnectError, match="the client is closed"):
        first.topic("t", timeout_s=0.01)
    with borrowed_client(HERE, "me", 1.0, "o") as second:
        assert second is not first


def test_a_read_that_ends_early_keeps_its_client() -> None:
    def reading() -> Iterator[clients.BlockingDataClient]:
        with borrowed_client(HERE, "me", 1.0, "o") as client:
            yield client
            yield client

    rows = reading()
    first = next(rows)
    del rows
    with borrowed_client(HERE, "me", 1.0, "o") as second:
        assert second is first


def test_only_a_few_clients_are_kept() -> None:
    for number in range(CLIENTS_MAX + 2):
        with borrowed_client((Endpoint("127.0.0.1", number + 1),), "me", 1.0, "o"):
            pass
    assert [key[0][0].port for key in clients._idle] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectError("nobody"), "nobody; option o says for how long it is tried"),
        (
            KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "t-0 has no leader"),
            "LEADER_NOT_AVAILABLE: t-0 has no leader; option o says for how long it is tried",
        ),
        (
            KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no t"),
            "UNKNOWN_TOPIC_OR_PARTITION: no t",
        ),
        (KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "t-0"), "MESSAGE_TOO_LARGE: t-0"),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "t-0"), "KAFKA_STORAGE_ERROR: t-0"),
    ],
)
def test_who_waited_in_vain_is_told_how_to_wait_longer(error: SparklogError, told: str) -> None:
    with pytest.raises(SparklogError) as caught, borrowed_client(HERE, "me", 1.0, "o"):
        raise error
    assert str(caught.value) == told
