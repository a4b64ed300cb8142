"""The Kafka protocol and the private messages of a cluster: bytes <-> values.

Owns: primitives, schemas, encoders and decoders, the generated messages, and Produce and Fetch
without copies of the records.  Must not know what records hold, files or sockets.  The modules are
the interface.
"""
