"""A broker's questions to the transaction coordinator: do partitions belong to a transaction?

Owns: which questions share a request (AddPartitionsToTxn v4 and later), and how often a question is
repeated while the transaction before is being ended.  Must not know batches or offsets.  Kafka:
``AddPartitionsToTxnManager``.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sparklog.client.backoff import ExponentialBackoff
from sparklog.client.deadline import Deadline
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.executors.controller_link.connection import ControllerConnection
from sparklog.slices import ITEMS_AT_ONCE
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

#: Requests under way at once, and transactions in one request.
REQUESTS_AT_ONCE: Final = 8
TRANSACTIONS_MAX: Final = 200
#: How long one request may take, in seconds.
REQUEST_TIMEOUT_S: Final = 5.0
#: For how long a question is repeated while the markers of the transaction before are being
#: written, in seconds, and the pauses between: the first and the longest.
CONCURRENT_S: Final = 1.0
CONCURRENT_PAUSE_S: Final = (0.002, 0.05)


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    transaction: AddPartitionsToTxnTransaction
    answer: "asyncio.Future[AddPartitionsToTxnResult]"

    @property
    def items(self) -> int:
        """The items of the request that the question takes."""
        topics = self.transaction.topics
        return 1 + len(topics) + sum(len(topic.partitions) for topic in topics)


class TransactionVerifier:
    """The ``VerifyTransaction`` of a broker.  The owner must ``close`` it."""

    def __init__(self, link: ControllerConnection) -> None:
        self._link = link
        self._questions: deque[_Question] = deque()
        self._requests: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Close the connection; questions without an answer are refused."""
        self._link.close()
        for request in self._requests:
            request.cancel()
        while self._questions:
            _refuse(self._questions.popleft(), _unavailable("the broker is stopping"))

    async def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> None:
        """See ``VerifyTransaction``.

        Raises:
            KafkaError: a refusal of the coordinator, as INVALID_TXN_STATE or TRANSACTION_ABORTABLE;
                COORDINATOR_NOT_AVAILABLE when it does not answer.
        """
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=_topics(partitions),
        )
        deadline, pauses = Deadline(CONCURRENT_S), ExponentialBackoff(*CONCURRENT_PAUSE_S)
        while True:
            code = _first_error(await self._ask(transaction))
            if code == ErrorCode.NONE:
                return
            if code != ErrorCode.CONCURRENT_TRANSACTIONS or deadline.left_s <= 0:
                raise KafkaError(
                    code, f"the coordinator does not confirm a transaction of {transactional_id!r}"
                )
            await pauses.wait()

    async def _ask(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        question = _Question(transaction, asyncio.get_running_loop().create_future())
        self._questions.append(question)
        self._send()
        return await question.answer

    def _send(self) -> None:
        """Send the questions that wait, unless so many requests are under way already."""
        while self._questions and len(self._requests) < REQUESTS_AT_ONCE:
            questions, items = [self._questions.popleft()], 0
            while self._questions and len(questions) < TRANSACTIONS_MAX:
                items += questions[-1].items
                if items + self._questions[0].items > ITEMS_AT_ONCE:
                    break
                questions.append(self._questions.popleft())
            request = asyncio.get_running_loop().create_task(self._request(questions))
            self._requests.add(request)
            request.add_done_callback(self._requested)

    def _requested(self, request: "asyncio.Task[None]") -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.result()
            self._send()

    async def _request(self, questions: list[_Question]) -> None:
        request = AddPartitionsToTxnRequest(
            transactions=tuple([question.transaction for question in questions])
        )
        refusal = _unavailable("the broker is stopping")
        results: tuple[AddPartitionsToTxnResult, ...] = ()
        try:
            response = await self._link.call(request, AddPartitionsToTxnResponse, REQUEST_TIMEOUT_S)
            results = response.results_by_transaction
            if len(results) != len(questions):
                refusal = _unavailable(f"{len(results)} results for {len(questions)} transactions")
        except KafkaError as error:
            refusal = error
        except ConnectError as error:
            refusal = _unavailable(str(error))
        finally:
            for number, question in enumerate(questions):
                if len(results) != len(questions):
                    _refuse(question, refusal)
                elif not question.answer.done():
                    question.answer.set_result(results[number])


def _refuse(question: _Question, error: KafkaError) -> None:
    if not question.answer.done():
        question.answer.set_exception(KafkaError(error.code, error.message))
        question.answer.exception()  # the one who asked may have gone


def _unavailable(why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction coordinator was not asked: {why}"
    )


def _topics(partitions: Collection[TopicPartition]) -> tuple[AddPartitionsToTxnTopic, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return tuple(
        AddPartitionsToTxnTopic(name=topic, partitions=tuple(numbers))
        for topic, numbers in by_topic.items()
    )


def _first_error(result: AddPartitionsToTxnResult) -> ErrorCode:
    codes = (
        ErrorCode(part.partition_error_code)
        for topic in result.topic_results
        for part in topic.results_by_partition
    )
    return next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)
