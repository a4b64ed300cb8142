"""The formats of the files of a segment that logs and buckets share: indexes and ``.stats``.

Owns: bytes <-> values, and which batches an index has entries for.  Must not know files or objects.
"""
