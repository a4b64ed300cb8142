"""A broker's questions to the coordinator, against a small node that answers as it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.controller_link import transaction_verifier
from sparklog.executors.controller_link.connection import ControllerConnection
from sparklog.executors.controller_link.transaction_verifier import (
    REQUESTS_AT_ONCE,
    TransactionVerifier,
)
from sparklog.service import members
from sparklog.service.dispatch import Dispatcher
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.transaction_error_responses import (
    refuse_add_partitions_to_txn,
    topic_results,
)
from sparklog.slices import ITEMS_AT_ONCE
from sparklog.transport import serve
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from tests.support.waiting import until

SECRET = b"s" * 32
OK = ErrorCode.NONE
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
TP = TopicPartition("t", 0)


class Node:
    """Answers each request with ``respond``, by default that every partition belongs to its
    transaction; ``codes`` has other error codes of partitions."""

    def __init__(self) -> None:
        self.requests: list[tuple[AddPartitionsToTxnTransaction, ...]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.opened = asyncio.Event()
        self.opened.set()
        self.respond: Callable[[AddPartitionsToTxnRequest], AddPartitionsToTxnResponse]
        self.respond = self.confirm
        self.verifier: TransactionVerifier
        self.link: ControllerConnection

    async def handle(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        assert context.member
        assert context.version == AddPartitionsToTxnRequest.MAX_VERSION
        self.requests.append(request.transactions)
        await self.opened.wait()
        return self.respond(request)

    def confirm(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        results = tuple(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=topic_results(
                    transaction.topics,
                    lambda topic, number: self.codes.get(TopicPartition(topic, number), OK),
                ),
            )
            for transaction in request.transactions
        )
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    async def ask(
        self,
        *partitions: TopicPartition,
        transactional_id: str = "tx",
        epoch: int = 3,
        add: bool = True,
    ) -> ErrorCode:
        """The outcome of a question about partitions, by default ``TP``."""
        try:
            await self.verifier(transactional_id, 7, epoch, partitions or (TP,), add=add)
        except KafkaError as error:
            return error.code
        return OK

    def asking(self, count: int) -> list[asyncio.Task[ErrorCode]]:
        """Questions about one partition each, of one turn of the loop."""
        return [asyncio.create_task(self.ask(TopicPartition("t", n))) for n in range(count)]


def run(test: Callable[[Node], Awaitable[None]]) -> None:
    async def within() -> None:
        node = Node()
        api = ApiHandler(
            api_key=AddPartitionsToTxnRequest.API_KEY,
            min_version=AddPartitionsToTxnRequest.MIN_VERSION,
            max_version=AddPartitionsToTxnRequest.MAX_VERSION,
            items_max=MANY_ITEMS,
            handle=node.handle,
            error_response=refuse_add_partitions_to_txn,
        )
        server = await serve("127.0.0.1", 0, Dispatcher([*members.handlers(SECRET), api]))
        endpoint = Endpoint("127.0.0.1", server.port)
        node.link = ControllerConnection(endpoint, SECRET, client_id="t")
        node.verifier = TransactionVerifier(node.link)
        try:
            await asyncio.wait_for(test(node), 30)
            assert not node.verifier._unanswered
        finally:
            node.verifier.close()
            await server.close(0)

    asyncio.run(within())


def asked(transactions: tuple[AddPartitionsToTxnTransaction, ...]) -> list[tuple[str, int, int]]:
    """Transactional id, epoch and number of partitions of each transaction."""
    return [
        (each.transactional_id, each.producer_epoch, sum(len(t.partitions) for t in each.topics))
        for each in transactions
    ]


@pytest.mark.parametrize("add", [True, False])
def test_a_question_is_a_request_of_brokers(add: bool) -> None:
    async def test(node: Node) -> None:
        partitions = (TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 0))
        assert await node.ask(*partitions, add=add) == OK
        ((transaction,),) = node.requests
        assert (transaction.transactional_id, transaction.producer_id) == ("tx", 7)
        assert (transaction.producer_epoch, transaction.verify_only) == (3, not add)
        assert [(topic.name, topic.partitions) for topic in transaction.topics] == [
            ("t", (1, 0)),
            ("u", (0,)),
        ]

    run(test)


def test_questions_of_one_turn_about_one_transaction_are_one_question() -> None:
    async def test(node: Node) -> None:
        node.codes[TopicPartition("t", 2)] = ErrorCode.TRANSACTION_ABORTABLE
        asking = node.asking(70)
        asking += [
            asyncio.create_task(node.ask(transactional_id="other")),
            asyncio.create_task(node.ask(epoch=4)),
            asyncio.create_task(node.ask(add=False)),
            asyncio.create_task(node.ask()),  # once more
        ]
        expected = [OK] * len(asking)
        expected[2] = ErrorCode.TRANSACTION_ABORTABLE
        assert await asyncio.gather(*asking) == expected
        (request,) = node.requests
        assert asked(request) == [("tx", 3, 70), ("other", 3, 1), ("tx", 4, 1), ("tx", 3, 1)]

    run(test)


def test_no_request_has_more_items_than_a_node_handles_at_once() -> None:
    async def test(node: Node) -> None:
        assert await asyncio.gather(*node.asking(700)) == [OK] * 700
        sizes = [size for request in node.requests for _, _, size in asked(request)]
        assert sum(sizes) == 700
        assert max(sizes) <= ITEMS_AT_ONCE / 3
        node.requests.clear()
        many = [TopicPartition("t", n) for n in range(ITEMS_AT_ONCE)]
        assert await node.ask(*many) == OK
        assert [asked(request) for request in node.requests] == [[("tx", 3, ITEMS_AT_ONCE)]]

    run(test)


def test_so_many_requests_are_under_way_at_once() -> None:
    async def test(node: Node) -> None:
        node.opened.clear()
        asking: list[asyncio.Task[ErrorCode]] = []
        for number in range(REQUESTS_AT_ONCE + 5):
            asking.append(asyncio.create_task(node.ask(transactional_id=f"tx-{number}")))
            count = min(number + 1, REQUESTS_AT_ONCE)
            await until(lambda expected=count: len(node.requests) == expected)  # type: ignore[misc]
        assert len(node.verifier._requests) == REQUESTS_AT_ONCE
        node.opened.set()
        assert await asyncio.gather(*asking) == [OK] * len(asking)
        assert [len(request) for request in node.requests] == [1] * REQUESTS_AT_ONCE + [5]

    run(test)


def test_a_question_is_repeated_while_the_transaction_before_ends() -> None:
    async def test(node: Node) -> None:
        node.codes[TP] = ErrorCode.CONCURRENT_TRANSACTIONS
        asking = asyncio.create_task(node.ask())
        await until(lambda: len(node.requests) >= 3)
        assert not asking.done()
        node.codes.clear()
        assert await asking == OK

    run(test)


def test_a_question_is_not_repeated_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_verifier, "CONCURRENT_S", 0.05)

    async def test(node: Node) -> None:
        node.codes[TP] = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await node.ask() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(node.requests) > 1

    run(test)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED, ErrorCode.NOT_COORDINATOR]
)
def test_the_word_of_the_coordinator_is_passed_on(code: ErrorCode) -> None:
    async def test(node: Node) -> None:
        node.codes[TP] = code
        assert await node.ask() == code
        assert len(node.requests) == 1

    run(test)


def without_results(response: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
    return replace(response, results_by_transaction=())


def with_too_many_results(response: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
    return replace(response, results_by_transaction=response.results_by_transaction * 2)


def without_partitions(response: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
    (result,) = response.results_by_transaction
    return replace(response, results_by_transaction=(replace(result, topic_results=()),))


def with_an_error(response: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
    return replace(response, error_code=int(UNAVAILABLE))


@pytest.mark.parametrize(
    "spoil", [without_results, with_too_many_results, without_partitions, with_an_error]
)
def test_no_malformed_response_is_a_confirmation(
    spoil: Callable[[AddPartitionsToTxnResponse], AddPartitionsToTxnResponse],
) -> None:
    async def test(node: Node) -> None:
        node.respond = lambda request: spoil(node.confirm(request))
        assert await asyncio.gather(*node.asking(2)) == [UNAVAILABLE] * 2
        node.respond = node.confirm
        assert await node.ask() == OK

    run(test)


def test_an_unknown_error_code_is_a_refusal() -> None:
    async def test(node: Node) -> None:
        node.codes[TP] = 9_999  # type: ignore[assignment]
        assert await node.ask() == ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


def test_a_lost_connection_refuses_what_was_asked_on_it() -> None:
    async def test(node: Node) -> None:
        node.opened.clear()
        asking = asyncio.create_task(node.ask())
        await until(lambda: node.requests)
        node.link.close()
        assert await asking == UNAVAILABLE
        node.opened.set()
        assert await node.ask() == OK

    run(test)


def test_a_coordinator_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_verifier, "REQUEST_TIMEOUT_S", 0.1)

    async def test(node: Node) -> None:
        node.opened.clear()
        assert await node.ask() == UNAVAILABLE

    run(test)


def test_a_closed_verifier_refuses_every_question() -> None:
    async def test(node: Node) -> None:
        node.opened.clear()
        asking = []
        for number in range(REQUESTS_AT_ONCE):
            asking.append(asyncio.create_task(node.ask(epoch=number)))
            await until(lambda expected=number: len(node.requests) > expected)  # type: ignore[misc]
        asking += node.asking(3)
        await asyncio.sleep(0)
        node.verifier.close()
        assert await asyncio.gather(*asking) == [UNAVAILABLE] * len(asking)
        assert await node.ask() == UNAVAILABLE
        assert len(node.requests) == REQUESTS_AT_ONCE

    run(test)


def test_a_verifier_may_be_closed_before_a_request_has_begun() -> None:
    async def test(node: Node) -> None:
        for turns in range(4):
            verifier = TransactionVerifier(node.link)
            asking = asyncio.create_task(verifier("tx", 7, 3, (TP,), add=True))
            for _ in range(turns):
                await asyncio.sleep(0)
            verifier.close()
            with pytest.raises(KafkaError, match="the broker is stopping"):
                await asyncio.wait_for(asking, 10)

    run(test)


def test_nobody_has_to_wait_for_the_answer() -> None:
    async def test(node: Node) -> None:
        node.opened.clear()
        asking = asyncio.create_task(node.ask())
        await until(lambda: node.requests)
        asking.cancel()
        await asyncio.wait([asking])
        node.opened.set()
        assert await node.ask() == OK

    run(test)
