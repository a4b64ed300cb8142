"""The tiering of a broker: segments go to the remote_dir, and are read from there.

Owns: the process that talks to the store, the copying by leaders, remote retention, and reads below
the local log start.  Must not know request schemas, or how objects are written.
"""

from sparklog.executors.tiering.tiering import Tiering, open_remote_logs

__all__ = ["Tiering", "open_remote_logs"]
