"""The survey and the repair of a damaged journal.

Owns: reading every file of a journal without stopping at the first damaged one (``survey``,
``salvage``), the commit that makes the journal usable again (``repair_plan``), and writing it while
no cluster uses the journal (``repair``, ``journal_in_use``).  Must not know the command line.
"""

from sparklog.driver.control_plane.journal_repair.journal_in_use import (
    locked_journal,
    require_no_controller,
)
from sparklog.driver.control_plane.journal_repair.repair import RepairError, repair_journal
from sparklog.driver.control_plane.journal_repair.repair_plan import RepairPlan, plan_repair
from sparklog.driver.control_plane.journal_repair.survey import (
    LostCommit,
    State,
    Survey,
    survey_journal,
)

__all__ = [
    "LostCommit",
    "RepairError",
    "RepairPlan",
    "State",
    "Survey",
    "locked_journal",
    "plan_repair",
    "repair_journal",
    "require_no_controller",
    "survey_journal",
]
