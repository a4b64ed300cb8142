"""Instances of Java classes in the driver's JVM, where only Java reaches Spark.

Owns: their compilation by Spark's own compiler (Janino), and their registration with the sessions
of an application.  Must not know the purpose of a class.

Every application compiles its own classes, in a class loader of its own: two applications one after
the other, in the same JVM, have different classes of the same names.
"""

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from sparklog.dataframe.jvm.java_sources import PACKAGE, compilation_unit


def new_instance(context: Any, name: str, java: str, *arguments: str) -> Any:
    """Create an instance of a public class with one constructor.

    Args:
        context: A Spark context.
        name: The class, without its package; a nested class is ``Outer$Nested``.
        java: A compilation unit.
        arguments: The arguments of the constructor.

    Raises:
        Exception: Whatever the JVM raises.
    """
    jvm, gateway = context._jvm, context._gateway
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(java)
    made = compiler.getClassLoader().loadClass(f"{PACKAGE}.{name}")
    given = gateway.new_array(jvm.Object, len(arguments))
    for index, argument in enumerate(arguments):
        given[index] = argument
    return made.getDeclaredConstructors()[0].newInstance(given)


class SessionExtension:
    """A rule or a strategy for the queries of an application, which its sessions get once.

    Args:
        classes: The classes of the compilation unit; the first class contains a ``Builder``.
        inject: The method of Spark's ``SparkSessionExtensions`` that takes the builder.
        without: The consequence for queries where this is not possible, for the log.
        log: The log of the extension.
        texts: The arguments of the builder.
    """

    def __init__(
        self,
        classes: tuple[str, ...],
        *,
        inject: str,
        without: str,
        log: logging.Logger,
        texts: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._classes = classes
        self._inject = inject
        self._without = without
        self._log = log
        self._texts = texts
        self._installed: WeakSet[Any] = WeakSet()

    def install(self, spark: Any) -> bool:
        """Add it to the sessions of this application.  Returns False where that is not possible."""
        try:
            context = spark.sparkContext
        except Exception as error:  # Spark Connect
            self._log.info("%s: %s", self._without, error)
            return False
        try:
            if context not in self._installed:
                java = compilation_unit(self._classes)
                name = f"{self._classes[0]}$Builder"
                builder = new_instance(context, name, java, *self._texts())
                getattr(spark._jsparkSession.extensions(), self._inject)(builder)
                self._installed.add(context)
        except Exception as error:  # whatever another version of Spark lacks
            self._log.warning("%s: %s", self._without, error)
            return False
        return True
