"""A broker's questions to the transaction coordinator: do partitions belong to a transaction?

Owns: which questions share a request (AddPartitionsToTxn v4 and later), and how often a question is
repeated while the transaction before is being ended.  Must not know batches or offsets.  Kafka:
``AddPartitionsToTxnManager``.

The questions of one turn of the event loop share a request, and those about one transaction are one
question to the coordinator, which makes one transition of them.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.client.backoff import ExponentialBackoff
from sparklog.client.deadline import Deadline, kafka_error
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.executors.controller_link.connection import ControllerConnection
from sparklog.slices import ITEMS_AT_ONCE
from sparklog.types import TopicPartition, numbers_by_topic
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

#: Requests under way at once, and questions in one request.
REQUESTS_AT_ONCE: Final = 8
QUESTIONS_MAX: Final = 200
#: How long one request may take, in seconds.
REQUEST_TIMEOUT_S: Final = 5.0
#: For how long a question is repeated while the markers of the transaction before are being
#: written, in seconds, and the pauses between: the first and the longest.
CONCURRENT_S: Final = 1.0
CONCURRENT_PAUSE_S: Final = (0.002, 0.05)


class _Transaction(NamedTuple):
    """The transaction of a question; ``add`` makes the partitions part of it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """Whether the partitions belong to the transaction; ``answer`` is the first error code."""

    transaction: _Transaction
    partitions: tuple[TopicPartition, ...]
    answer: asyncio.Future[int]

    @property
    def items(self) -> int:
        """The most items of the request that the question takes."""
        return 1 + 2 * len(self.partitions)

    def take(self, codes: Mapping[TopicPartition, int]) -> None:
        """Take the error codes of a response."""
        if self.answer.done():
            return
        if not codes.keys() >= set(self.partitions):
            self.refuse(_unavailable("the response does not name all partitions"))
            return
        found = (code for tp in self.partitions if (code := codes[tp]))
        self.answer.set_result(next(found, int(ErrorCode.NONE)))

    def refuse(self, error: KafkaError) -> None:
        if not self.answer.done():
            self.answer.set_exception(KafkaError(error.code, error.message))
            self.answer.exception()  # the one who asked may have gone


class TransactionVerifier:
    """The ``VerifyTransaction`` of a broker.  The owner must ``close`` it."""

    def __init__(self, link: ControllerConnection) -> None:
        self._link = link
        self._closed = False
        #: The questions that no request has taken yet, and all that have no answer.
        self._unsent: deque[_Question] = deque()
        self._unanswered: dict[_Question, None] = {}
        self._send_planned = False
        self._requests: dict[asyncio.Task[None], None] = {}

    def close(self) -> None:
        """Close the connection; questions without an answer are refused, and so are later ones."""
        self._closed = True
        self._link.close()
        for request in self._requests:
            request.cancel()
        self._unsent.clear()
        for question in self._unanswered:
            question.refuse(_stopping())

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
        transaction = _Transaction(transactional_id, producer_id, producer_epoch, add)
        deadline, pauses = Deadline(CONCURRENT_S), ExponentialBackoff(*CONCURRENT_PAUSE_S)
        while True:
            code = await self._ask(transaction, tuple(partitions))
            if code == ErrorCode.NONE:
                return
            if code != ErrorCode.CONCURRENT_TRANSACTIONS or deadline.left_s <= 0:
                raise kafka_error(
                    code, f"the coordinator does not confirm a transaction of {transactional_id!r}"
                )
            await pauses.wait()

    async def _ask(self, transaction: _Transaction, partitions: tuple[TopicPartition, ...]) -> int:
        if self._closed:
            raise _stopping()
        loop = asyncio.get_running_loop()
        question = _Question(transaction, partitions, loop.create_future())
        self._unsent.append(question)
        self._unanswered[question] = None
        if not self._send_planned:
            self._send_planned = True
            loop.call_soon(self._send)
        try:
            return await question.answer
        finally:
            self._unanswered.pop(question, None)

    def _send(self) -> None:
        """Send the questions that wait, unless so many requests are under way already."""
        self._send_planned = False
        while self._unsent and len(self._requests) < REQUESTS_AT_ONCE:
            questions = [self._unsent.popleft()]
            items = questions[0].items
            while self._unsent and len(questions) < QUESTIONS_MAX:
                items += self._unsent[0].items
                if items > ITEMS_AT_ONCE:
                    break
                questions.append(self._unsent.popleft())
            request = asyncio.get_running_loop().create_task(self._request(questions))
            self._requests[request] = None
            request.add_done_callback(self._requested)

    def _requested(self, request: "asyncio.Task[None]") -> None:
        self._requests.pop(request, None)
        self._send()
        if not request.cancelled():
            request.result()

    async def _request(self, questions: Sequence[_Question]) -> None:
        by_transaction: dict[_Transaction, list[_Question]] = {}
        for question in questions:
            by_transaction.setdefault(question.transaction, []).append(question)
        request = AddPartitionsToTxnRequest(
            transactions=tuple(
                _transaction(transaction, [tp for question in asked for tp in question.partitions])
                for transaction, asked in by_transaction.items()
            )
        )
        refusal = _unavailable("the request failed")
        try:
            response = await self._link.call(request, AddPartitionsToTxnResponse, REQUEST_TIMEOUT_S)
            results = response.results_by_transaction
            if len(results) == len(by_transaction):
                for asked, result in zip(by_transaction.values(), results, strict=True):
                    codes = _codes(result)
                    for question in asked:
                        question.take(codes)
            else:
                refusal = _unavailable(
                    f"{len(results)} results for {len(by_transaction)} transactions"
                )
        except KafkaError as error:
            refusal = error
        except ConnectError as error:
            refusal = _unavailable(str(error))
        finally:
            for question in questions:
                question.refuse(refusal)


def _stopping() -> KafkaError:
    return _unavailable("the broker is stopping")


def _unavailable(why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction coordinator was not asked: {why}"
    )


def _transaction(
    transaction: _Transaction, partitions: Collection[TopicPartition]
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        verify_only=not transaction.add,
        topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(dict.fromkeys(partitions)).items()
        ),
    )


def _codes(result: AddPartitionsToTxnResult) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, part.partition_index): part.partition_error_code
        for topic in result.topic_results
        for part in topic.results_by_partition
    }
