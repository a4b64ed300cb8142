"""Request handlers of a broker: one file per API, each translates and never decides.

Owns: the translation between messages and the partition table, the producer id blocks or the
control link.  Must not know sockets or files.
"""
