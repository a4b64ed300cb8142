"""PySpark finds this module by its name and registers ``DefaultSource`` as ``sparklog``."""

from sparklog.dataframe.source import SparklogDataSource

__all__ = ["DefaultSource"]


class DefaultSource(SparklogDataSource):
    """The class that PySpark's discovery looks for in every top-level module ``pyspark_*``."""
