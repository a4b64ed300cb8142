"""Topics as DataFrames: the Spark Data Source ``format("sparklog")``.

Owns: options, planning, readers and writers.  Must not know ``driver`` or ``executors``: it reaches
the cluster only through ``sparklog.client``.
"""
