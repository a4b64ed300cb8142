"""The filter of aborted transactions in a read_committed fetch.

Owns: the walk of Kafka's consumer over batches and the ``aborted_transactions`` of their response.
It drops a producer's batches from the first offset of an aborted transaction to the abort marker.
Must not know records or the reader.
"""

from collections.abc import Iterable

from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import BatchHeader, Buffer, check_batch
from sparklog.wire.records.control import ControlType, read_marker


class AbortedFilter:
    """The aborted transactions of one response; ``drops`` is called for every batch, in order."""

    __slots__ = ("_aborting", "_coming")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        #: Aborted transactions that begin behind the batches so far, last first.
        self._coming = sorted(
            ((txn.first_offset, txn.producer_id) for txn in aborted), reverse=True
        )
        self._aborting: set[int] = set()

    def drops(self, buf: Buffer, start: int, header: BatchHeader) -> bool:
        """Whether the batch at ``start`` holds aborted data.

        Raises DecodeError, KafkaError for a damaged marker, because the end of the aborted data is
        unknown without it.
        """
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._aborting.add(self._coming.pop()[1])
        if header.producer_id not in self._aborting:
            return False
        if not header.is_control:
            return header.is_transactional
        check_batch(buf, start, header)
        marker = read_marker(buf, start, header)
        if marker is not None and marker.control_type is ControlType.ABORT:
            self._aborting.discard(header.producer_id)
        return False
