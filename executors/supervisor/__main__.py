"""``python -m sparklog.executors.supervisor``: the supervisor as a process."""

import sys

from sparklog.executors.supervisor.supervisor import main

if __name__ == "__main__":
    sys.exit(main())
