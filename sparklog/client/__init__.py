"""Clients of a cluster: connections, leader routing, raw batches, and on them the friendly ones.

Owns: everything between a bootstrap address and records.  Must not know Spark, nor how a broker
works inside.  Import from the modules: ``sparklog.client.producer`` and so on.
"""
