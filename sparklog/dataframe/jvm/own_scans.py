"""The rule that gives every scan of a topic a source of its own, of the columns that it needs.

Owns: the installation of the rule (``java/OwnScansRule.java``).  Must not know what a scan reads.

Spark keeps the plan of a Python source (partitions, and the filters pushed into them) in the object
that ``load()`` made.  All scans of that DataFrame share it: the last filter that was pushed narrows
the others too, in the same query (a view that is read twice) and in later queries, and new records
stay unseen.  The rule replaces that object in every scan by a fresh one and marks the scan with an
option; only marked scans use filters.  Where the rule cannot be installed (Spark Connect), filters
are not pushed down, and a DataFrame goes on reading what was there at its first query.

Spark tells a Python source nothing of the columns that a query uses.  The rule therefore also takes
the columns that nothing above a scan refers to out of it, as Spark does for other sources; the
source gets the rest as its schema.  A scan whose rows are only counted keeps the cheapest column.
If a user's schema is wrong, it stays whole, so that the source sees what to refuse.
"""

import logging
from typing import Any, Final

from sparklog.dataframe.jvm.java_sources import OWN_SCANS
from sparklog.dataframe.jvm.session_extension import SessionExtension

log = logging.getLogger(__name__)

_EXTENSION: Final = SessionExtension(
    OWN_SCANS,
    inject="injectOptimizerRule",
    without="filters on topics are not pushed down",
    log=log,
)


def install(spark: Any) -> bool:
    """Add the rule to the sessions of this application; False where that is not possible."""
    return _EXTENSION.install(spark)
