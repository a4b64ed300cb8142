"""Blocks of producer ids, for brokers and for the control plane itself.

Owns: the guarantee that no id is allocated twice.  Must not know how producers use the ids.
"""

from dataclasses import dataclass

from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.sessions import check_broker_epoch
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, ProducerIdsAllocated, Record
from sparklog.types import CONTROLLER_NODE_ID, COORDINATOR_PRODUCER_ID_BASE
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.protocol.private import AllocateProducerIdsRequest, AllocateProducerIdsResponse

#: Producer ids per block; the rest of a block is lost when the process that holds it ends.
BLOCK_IDS = 1_000


@dataclass(slots=True)
class OwnProducerIds:
    """The unused rest of the control plane's own block; ``end`` is exclusive."""

    next_id: int = 0
    end: int = 0


def allocate_producer_ids(image: ClusterImage, request: AllocateProducerIdsRequest) -> Decision:
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    block = _next_block(image, request.broker_id)
    return Decision(
        records=(block,),
        response=AllocateProducerIdsResponse(
            first_producer_id=block.first_producer_id, count=block.count
        ),
    )


def init_producer_id(image: ClusterImage, own: OwnProducerIds) -> Decision:
    """A new producer id for an idempotent producer that has asked the control plane."""
    records: tuple[Record, ...] = ()
    if own.next_id == own.end:
        block = _next_block(image, CONTROLLER_NODE_ID)
        own.next_id, own.end = block.first_producer_id, block.first_producer_id + block.count
        records = (block,)
    producer_id = own.next_id
    own.next_id += 1
    return Decision(
        records=records, response=InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    )


def _next_block(image: ClusterImage, broker_id: int) -> ProducerIdsAllocated:
    first = image.next_producer_id
    if first > COORDINATOR_PRODUCER_ID_BASE - BLOCK_IDS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
    return ProducerIdsAllocated(broker_id=broker_id, first_producer_id=first, count=BLOCK_IDS)
