"""The lock file that a cluster holds in its local folders.

Owns: the name of the lock file.  Must not know the launcher, which takes the lock, nor the
journal repair, which checks whether the lock is taken.
"""

from typing import Final

#: The file lies in the cluster's data folder and in the folder of its journal.
CLUSTER_LOCK_FILE: Final = "cluster.lock"
