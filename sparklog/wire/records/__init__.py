"""Record batches: bytes <-> records, and bytes <-> Arrow columns.

Owns: record batch v2, compression, control batches, varints, and finding records in batches.  Must
not know files, sockets, or requests and responses (``wire.protocol``), except the list of aborted
transactions in a Fetch response.  The modules are the interface: ``columns`` needs Arrow, and a
broker does not import it.
"""
