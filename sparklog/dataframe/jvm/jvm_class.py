"""Makes classes in the driver's JVM, where Spark can only be reached by one of Java.

Owns: their compilation, by the compiler that Spark brings along (Janino), giving them to the
sessions of an application, and what strategies for Spark's planner have in common.  Must not know
what they are for.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakSet

#: The start of a class that extends ``SparkStrategy``: its session, the setting that turns it off
#: (``false``), and what is done when this Spark turns out to be another than we know.
PLANNER_STRATEGY: Final = r"""
  private static volatile boolean refused;
  private final SparkSession session;

  private CLASS(SparkSession session) {
    this.session = session;
  }

  public static class Builder extends scala.runtime.AbstractFunction1 {
    public Object apply(Object session) {
      return new CLASS((SparkSession) session);
    }
  }

  /** Also after all that ``refuse`` was told. */
  private boolean isWanted() {
    return !refused
        && !"false".equalsIgnoreCase(session.conf().get("SETTING", "true").trim());
  }

  /** Spark's other strategies plan, this time and from now on. */
  private static Seq refuse(Throwable error) {
    refused = true;
    System.err.println("sparklog: WITHOUT: " + error);
    return sequence();
  }

  static Seq sequence(Object... items) {
    return CollectionConverters.asScala(java.util.Arrays.asList(items)).toSeq();
  }
"""


def filled(java: str, values: Mapping[str, str]) -> str:
    """The text with each name replaced, in this order."""
    for name, value in values.items():
        java = java.replace(name, value)
    return java


def new_instance(context: Any, name: str, java: str) -> Any:
    """An instance of the public class ``name``, which may be one inside another.

    ``context`` is a Spark context.  Raises whatever the JVM raises.
    """
    jvm, gateway = context._jvm, context._gateway
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(java)
    made = compiler.getClassLoader().loadClass(name)
    return made.getDeclaredConstructors()[0].newInstance(gateway.new_array(jvm.Object, 0))


class SessionExtension:
    """What the sessions of an application get once: a rule, or a strategy, for their queries.

    ``name`` is its class, with a ``Builder`` inside; ``inject`` the method of Spark's
    ``SparkSessionExtensions`` that takes the builder; ``without`` says what becomes of queries
    where this is not possible.
    """

    def __init__(self, name: str, inject: str, without: str, log: logging.Logger) -> None:
        self._name = name
        self._inject = inject
        self._without = without
        self._log = log
        self._installed: WeakSet[Any] = WeakSet()

    def install(self, spark: Any, java: Callable[[], str]) -> bool:
        """Give it to the sessions of this application; False where that is not possible."""
        try:
            context = spark.sparkContext
        except Exception as error:  # Spark Connect
            self._log.info("%s: %s", self._without, error)
            return False
        try:
            if context not in self._installed:
                builder = new_instance(context, f"{self._name}$Builder", java())
                getattr(spark._jsparkSession.extensions(), self._inject)(builder)
                self._installed.add(context)
        except Exception as error:  # whatever another version of Spark lacks
            self._log.warning("%s: %s", self._without, error)
            return False
        return True
