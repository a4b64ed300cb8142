"""The control plane and the Spark launcher.

Owns: the controller and its journal, which run in a process of their own, and the code in the Spark
driver that submits, watches and resubmits brokers.  Must not know how a broker works inside.
"""
