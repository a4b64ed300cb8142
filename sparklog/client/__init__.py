"""Clients of a cluster: connections, leader routing, data requests, producer, consumer and admin.

Owns: everything between a bootstrap address and records.  Must not know Spark, nor how a broker
works inside.  Import from the modules: ``sparklog.client.producer`` and so on.
"""
