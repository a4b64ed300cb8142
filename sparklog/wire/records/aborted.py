"""Which batches of a fetch are of aborted transactions, as a read_committed consumer finds out.

Owns: the walk of Kafka's consumer over batches and the ``aborted_transactions`` of their answer: a
producer's batches are dropped from the first offset of its aborted transaction to its abort marker.
Must not know records or who reads.
"""

from collections.abc import Iterable

from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import BatchHeader, Buffer, check_batch
from sparklog.wire.records.control import ControlType, read_marker


class AbortedFilter:
    """The aborted transactions of one answer; every batch of it is shown in order."""

    __slots__ = ("_aborting", "_coming")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        #: Those that the batches have not reached yet, the last one first.
        self._coming = sorted(
            ((txn.first_offset, txn.producer_id) for txn in aborted), reverse=True
        )
        self._aborting: set[int] = set()

    def drops(self, buf: Buffer, start: int, header: BatchHeader) -> bool:
        """Whether the batch at ``start`` holds aborted data.

        Raises DecodeError, KafkaError for a damaged marker: without it, it is not known where the
        aborted data end.
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
