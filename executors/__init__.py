"""A broker and the supervisor that keeps it running on one executor.

Owns: logs, partitions, request handlers and the broker's process.  Must not know the control
plane's inside (``sparklog.driver``): the two meet on the wire.
"""
