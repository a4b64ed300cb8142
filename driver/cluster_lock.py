"""The lock that a cluster holds on its local folders.

Owns: the name of the lock file.  Must not know the launcher, which takes the lock, nor the
repair of a journal, which looks for it.
"""

from typing import Final

#: In the cluster's folder, and in the folder of its journal.
CLUSTER_LOCK_FILE: Final = "cluster.lock"
