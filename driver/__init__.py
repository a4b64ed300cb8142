"""The control plane and the Spark launcher.

Owns: the controller and its journal (a process of its own), and the code of the Spark driver that
submits, watches and resubmits brokers.  Must not know how a broker works inside.
"""
