"""The log of one partition on disk, in Kafka's own file formats.

Owns: segments, indexes, checkpoints, recovery, retention and flush decisions.  Must not know
partitions' roles, clients or clocks (``now_ms`` comes in), and reaches files only through the file
half of a storage backend.
"""
