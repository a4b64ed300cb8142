"""The command line: ``sparklog COMMAND``.

Owns: commands, their options and their output, one module per command.  Must not know how clients,
launcher or logs work.  Every command imports its needs when it runs, so that ``--help`` is fast and
only commands that start Spark load PySpark.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no broker reached.
"""

from sparklog.cli.app import main

__all__ = ["main"]
