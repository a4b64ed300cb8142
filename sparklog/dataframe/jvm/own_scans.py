"""The rule that gives every scan of a topic its own source, with only the needed columns.

Owns: the installation of the rule (``java/OwnScansRule.java``).  Must not know how a scan reads.

Spark keeps the plan of a Python source (partitions, and the filters pushed into them) in the object
that ``load()`` made.  All scans of that DataFrame share it: the last filter that was pushed narrows
the others too, in the same query (a view that is read twice) and in later queries, and new records
stay unseen.  The rule replaces that object in every scan by a fresh one and marks the scan with an
option; only marked scans use filters.  Where the rule cannot be installed (Spark Connect), filters
are not pushed down, and a DataFrame goes on reading the records of its first query's time.

Spark does not tell a Python source which columns a query uses.  Therefore the rule also removes the
unused columns from a scan, as Spark does for other sources; the source gets the remaining columns
as its schema.  A scan whose rows are only counted keeps the cheapest column.  A wrong user schema
stays whole, so that the source can refuse it.
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
    """Add the rule to the sessions of this application; return False where that is impossible."""
    return _EXTENSION.install(spark)
