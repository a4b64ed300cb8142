"""Makes classes in the driver's JVM, where Spark can only be reached by one of Java.

Owns: their compilation, by the compiler that Spark brings along (Janino).  Must not know what they
are for.
"""

from typing import Any


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
