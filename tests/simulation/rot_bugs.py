"""Deliberate bugs of the scrub and of repairs, which runs of ``bit_rot`` have to catch.

Owns: the patches.  Must not know how they are caught.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import sparklog.executors.log.range_repair as range_repair_module
import sparklog.executors.replication.range_repairer as range_repairer_module
from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.range_repair import Piece, RangeRepair
from sparklog.executors.log.scan import ScanWindow
from sparklog.executors.log.segment_stats import SegmentFiles
from sparklog.storage_backends.base import Buffer
from sparklog.wire.records.batch import iter_batches
from tests.simulation.planting import Patch

ROT_BUGS: dict[str, Callable[[], list[Patch]]] = {}


def _bug(make: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    ROT_BUGS[make.__name__] = make
    return make


@contextmanager
def planted_rot(name: str | None) -> Iterator[None]:
    """The bug is in the code meanwhile; None: there is none."""
    with ExitStack() as stack:
        for target, attribute, substitute in ROT_BUGS[name]() if name is not None else ():
            stack.enter_context(patch.object(target, attribute, substitute))
        yield


@_bug
def repair_with_damaged_bytes_too() -> list[Patch]:
    """What another replica sends is taken without a look at its checksum."""

    def take(self: RangeRepair, records: Buffer) -> bool:
        took = False
        for header, start in iter_batches(records, partial_tail=True):
            if self.complete:
                break
            data = bytes(memoryview(records)[start : start + header.size])
            self._take(header.base_offset, header.partition_leader_epoch, header.next_offset, data)
            took = True
        return took

    return [(RangeRepair, "take", take)]


@_bug
def repair_more_than_the_range() -> list[Patch]:
    """The write goes on behind the damaged range."""
    real = range_repair_module.write_pieces

    def write_pieces(
        files: SegmentFiles,
        pieces: Sequence[Piece],
        epochs: Sequence[EpochEntry],
        *,
        compacted: bool = False,
    ) -> int:
        replaced = real(files, pieces, epochs, compacted=compacted)
        end = pieces[-1].position + len(pieces[-1].data)
        handle = files.half.open(files.log_path)
        size = min(30, handle.size() - end)
        handle.overwrite(end, bytes(size))
        handle.close()
        return replaced

    return [(range_repairer_module, "write_pieces", write_pieces)]


@_bug
def scrub_without_the_checksum() -> list[Patch]:
    """Nobody looks at the checksums of stored batches."""
    return [(ScanWindow, "checksum_damage", lambda self, header, position: None)]
