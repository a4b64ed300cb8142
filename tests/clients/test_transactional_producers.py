"""Until there are transactions, a producer that wants one is told so at once."""

import asyncio
import subprocess
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.clients.peer_kafka_python import KafkaProducer, TransactionalIdAuthorizationFailedError
from tests.clients.peer_kcat import KCAT
from tests.support.proven import proves

#: Below every client's own timeout, which is 40 s or more; no less, for a machine may pause.
SECONDS_MAX = 30.0
REASON = "transactional id 'x' refused: transactions are not available yet"


@pytest.fixture(autouse=True)
def at_once(bootstrap: str) -> object:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SECONDS_MAX


@proves("refused transaction", "confluent")
def test_confluent(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x", "log_level": 0})
    with pytest.raises(KafkaException, match=REASON) as caught:
        producer.init_transactions(60)
    error = caught.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (error.fatal(), error.retriable()) == (True, False)


@proves("refused transaction", "kafka-python")
def test_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="x")
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close(timeout=1)


@proves("refused transaction", "aiokafka")
def test_aiokafka(bootstrap: str) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="x")
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(start())


@proves("refused transaction", "kcat")
@pytest.mark.skipif(not Path(KCAT).exists(), reason=f"{KCAT} is not installed")
def test_kcat(bootstrap: str) -> None:
    command = [KCAT, "-P", "-b", bootstrap, "-t", "any", "-m", "60", "-X", "transactional.id=x"]
    done = subprocess.run(command, input=b"value\n", capture_output=True, timeout=90, check=False)
    assert done.returncode == 1
    assert REASON in done.stderr.decode()
