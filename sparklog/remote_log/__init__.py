"""The part of a log that lies in a bucket: sealed segments as objects, and a manifest for each
partition.

Owns: the names and the contents of the objects, the manifest, and the copying and reading of
segments through a storage backend.  Must not know brokers, roles, clients or clocks.  Every call
that reaches the store blocks.
"""
