"""Kafka's requests and responses, and those between members of a cluster: bytes <-> values.

Owns: primitives, schemas, encoders and decoders, the generated messages, and Produce and Fetch
without copies of the records.  Must not know what is inside of records, files or sockets.  The
modules are the interface.
"""
