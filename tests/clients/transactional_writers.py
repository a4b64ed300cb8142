"""Transactional producers of other people's client libraries, behind one interface.

Owns: how each client writes, commits and aborts.  Must not know what a test expects.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from confluent_kafka import KafkaException, Producer

from tests.clients.go_member import go_program
from tests.clients.peer_kafka_python import (
    InvalidProducerEpochError,
    KafkaProducer,
    ProducerFencedError,
)

SECONDS_MAX = 60.0


class Fenced(Exception):
    """The client says that another producer has its transactional id."""


class Writer(Protocol):
    """A transactional producer; every call returns when the client has an answer.

    Raises:
        Fenced: another producer has the transactional id.
    """

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: bytes) -> None:
        """Send a record and wait for its acknowledgement."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None:
        """End the client, whose open transaction stays open."""


class ConfluentWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(SECONDS_MAX)

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, value: bytes) -> None:
        errors: list[Any] = []
        self.producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
        self._call(lambda: self.producer.flush(SECONDS_MAX))
        if errors != [None]:
            raise Fenced(errors)

    def commit(self) -> None:
        self._call(self.producer.commit_transaction)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.purge()
        del self.producer

    def _call(self, call: Callable[..., Any]) -> None:
        try:
            call()
        except (KafkaException, SystemError) as raised:
            # SystemError: a delivery report was given while the fatal error was being raised.
            error = raised.__cause__ if isinstance(raised, SystemError) else raised
            if not isinstance(error, KafkaException):
                raise
            if error.args[0].fatal() or error.args[0].txn_requires_abort():
                raise Fenced(str(error)) from error
            raise


class KafkaPythonWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=0
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._call(lambda: self._producer.send(topic, value, partition=partition).get(SECONDS_MAX))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=0)

    def _call(self, call: Callable[..., Any]) -> None:
        try:
            call()
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            raise Fenced(str(error)) from error


class AiokafkaWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._runner = asyncio.Runner()

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id
            )
            await producer.start()
            return producer

        self._producer = self._runner.run(start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        async def end() -> None:
            sender = self._producer._sender
            if sender is not None:
                await sender.close()
            await self._producer.client.close()

        self._run(end())
        self._runner.close()

    def _run(self, call: Any) -> None:
        async def limited() -> None:
            await asyncio.wait_for(call, SECONDS_MAX)

        try:
            self._runner.run(limited())
        except ProducerFenced as error:
            raise Fenced(str(error)) from error


class GoWriter:
    """franz-go or sarama, in a process of its own."""

    #: How these clients name the errors of a fenced producer.
    FENCED = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "old epoch", "newer producer")

    def __init__(self, bootstrap: str, transactional_id: str, *, client: str) -> None:
        arguments = {"mode": "writer", "client": client, "bootstrap": bootstrap}
        options = [f"-{name}={value}" for name, value in arguments.items()]
        self._process = subprocess.Popen(
            [str(go_program()), *options, f"-id={transactional_id}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def begin(self) -> None:
        self._call("begin")

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._call(f"send {topic} {partition} {value.decode().replace(' ', '-')}")

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        """The process dies, as a client that crashes."""
        self._process.kill()
        self._process.wait(SECONDS_MAX)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _call(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        """Wait for the end of a command; the process itself limits every call."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        error = json.loads(line)["done"]
        if any(words in error for words in self.FENCED):
            raise Fenced(error)
        assert not error, error


WRITERS: Mapping[str, Callable[[str, str], Writer]] = {
    "confluent": ConfluentWriter,
    "kafka-python": KafkaPythonWriter,
    "aiokafka": AiokafkaWriter,
    "franz-go": partial(GoWriter, client="franz-go"),
    "sarama": partial(GoWriter, client="sarama"),
}
