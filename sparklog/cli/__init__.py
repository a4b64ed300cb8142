"""The command line: ``sparklog COMMAND``.

Owns: commands, their options and their output, one file each.  Decides nothing about logs.
Every command imports what it needs when it runs, so that ``--help`` is fast and only commands that
start Spark load PySpark.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no broker reached.
"""

from sparklog.cli.app import main

__all__ = ["main"]
