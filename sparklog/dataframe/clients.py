"""Clients that outlive a task.

Owns: the clients of this process, by cluster.  Must not know their requests.  Spark reuses its
Python processes, so a later task saves the round trips of opening connections.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.deadline import UNKNOWN_TOPIC_CODES
from sparklog.client.preferred_read_replicas import given_rack, own_rack
from sparklog.errors import ConnectError, ErrorCode, KafkaError, SparklogError
from sparklog.types import Endpoint

#: Clusters whose clients a process keeps; beyond that the least recently used client is closed.
CLIENTS_MAX: Final = 4

_Key = tuple[tuple[Endpoint, ...], str, float, str | None]
_idle: "OrderedDict[_Key, BlockingDataClient]" = OrderedDict()


@contextmanager
def borrowed_client(
    bootstrap: tuple[Endpoint, ...],
    client_id: str,
    timeout_s: float,
    timeout_option: str,
    rack: str | None = "",
) -> Iterator[BlockingDataClient]:
    """A client for one borrower at a time, which refreshes every topic.

    The client is kept for the next borrower unless the block raises.  It reads from replicas in
    ``rack`` (None: the rack of this host; empty: from leaders).  Timeout errors of the block name
    ``timeout_option``, the option that sets the timeout.
    """
    key = (bootstrap, client_id, timeout_s, rack)
    client = _idle.pop(key, None)
    if client is None or not client.usable:
        client = BlockingDataClient(
            bootstrap,
            client_id=client_id,
            timeout_s=timeout_s,
            rack_of=own_rack if rack is None else given_rack(rack),
        )
    client.cluster.expire_topics()
    try:
        yield client
    except GeneratorExit:  # the caller stopped reading early
        _keep(key, client)
        raise
    except (ConnectError, KafkaError) as error:
        _close(client)
        raise _with_remedy(error, timeout_option) from error
    except BaseException:
        _close(client)
        raise
    else:
        _keep(key, client)


def _with_remedy(error: ConnectError | KafkaError, timeout_option: str) -> SparklogError:
    """The same error with a remedy added, if more time may help."""
    remedy = f"option {timeout_option} says for how long it is tried"
    if isinstance(error, ConnectError):
        return ConnectError(f"{error}; {remedy}")
    # Storage that fails needs a look into the log of its broker, as the error says, and not time.
    if not error.retriable or error.code in (*UNKNOWN_TOPIC_CODES, ErrorCode.KAFKA_STORAGE_ERROR):
        return error
    return KafkaError(error.code, f"{error.message}; {remedy}")


def _keep(key: _Key, client: BlockingDataClient) -> None:
    before = _idle.pop(key, None)
    _idle[key] = client
    if before is not None:
        _close(before)
    while len(_idle) > CLIENTS_MAX:
        _close(_idle.popitem(last=False)[1])


def _close(client: BlockingDataClient) -> None:
    with suppress(SparklogError):
        client.close()
