"""The strategy that has Spark pack the rows of a write before they come to Python.

Owns: the installation of the strategy (``java/PackedWritesStrategy.java``).  Must not know how
records are laid out, nor how they travel.

A row that goes through Arrow to Python and becomes a record there costs more than all the rest of a
write.  The strategy puts a step of its own under such writes, whose rows are pieces: the records of
one batch each.  It marks the write with an option that says the schema of the rows, so that the
source checks what it always checks.

The strategy leaves these writes alone:

- Writes that the packer cannot do exactly as Python does: those with other columns than ``key``,
  ``value`` and ``timestamp``, or with a partitioner.
- Writes of rows that Python makes.  The packer has a task say how many rows go to Python at once
  (``java/Packer.java``), and threads of other steps may read that before it is taken back.
- Writes of rows with keys that the JVM does not send (``java/PieceDestination.java``): only a
  client that asks for the topic's partitions can divide such rows.
- All writes, where the strategy cannot be installed (Spark Connect).

The packer is compiled in the driver before the first write, so that a Spark that cannot do it shows
while the write can still be planned as usual.  Where the rows come out of code that Spark
generates, the packer is part of that code (``java/FusedPackExec.java``).
"""

import logging
from typing import Any, Final

from sparklog.dataframe.jvm.constants import WITHOUT_PACKED_WRITES
from sparklog.dataframe.jvm.java_sources import (
    PACKED_ROWS,
    PACKED_WRITES,
    PACKER,
    generated_class,
    inner_classes,
)
from sparklog.dataframe.jvm.session_extension import SessionExtension

log = logging.getLogger(__name__)

_EXTENSION: Final = SessionExtension(
    PACKED_WRITES,
    inject="injectPlannerStrategy",
    without=WITHOUT_PACKED_WRITES,
    log=log,
    texts=lambda: (inner_classes(PACKER), generated_class(PACKED_ROWS)),
)


def install(spark: Any) -> bool:
    """Give the strategy to the sessions of this application; False where that is not possible."""
    return _EXTENSION.install(spark)
