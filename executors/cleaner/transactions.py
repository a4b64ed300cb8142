"""The transactions that a cleaning meets on its way through a log.

Owns: which batches are aborted data, and which markers are useless now
(``CleanedTransactionMetadata``).  Must not know keys, files or delete horizons.

A marker is useful as long as the input has a batch of its transaction, even an emptied batch.
Without the marker, the transaction of that batch would count as open for ever.
"""

from collections.abc import Iterable

from sparklog.executors.log import AbortedTxn
from sparklog.wire.records.batch import BatchHeader
from sparklog.wire.records.control import ControlType, EndTxnMarker


class CleanedTransactions:
    """One walk over the batches of a log, in order.

    ``aborted`` are all aborted transactions with data among the batches, in any order.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        #: Aborted transactions that begin behind the batches so far, last first.
        self._coming = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTxn] = {}
        #: Producers with a batch of their present transaction among the batches so far.
        self._met: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return header.producer_id in self._aborting

    def end(
        self, header: BatchHeader, marker: EndTxnMarker | None
    ) -> tuple[bool, AbortedTxn | None]:
        """Whether a control batch is useless, and the transaction that a useful one aborts.

        ``marker`` is None for an emptied batch, which is useless.
        """
        self._advance(header.last_offset)
        if marker is None:
            return True, None
        met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        if marker.control_type is not ControlType.ABORT:
            return not met, None
        aborted = self._aborting.pop(header.producer_id, None)
        useless = aborted is None or not met
        return useless, None if useless else aborted

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            txn = self._coming.pop()
            self._aborting.setdefault(txn.producer_id, txn)
