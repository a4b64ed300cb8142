"""The request handlers of a broker: one module per API, which translates and never decides.

Owns: the translation between messages and the replica manager, the producer id blocks or the
controller link.  Must not know sockets or files.
"""
