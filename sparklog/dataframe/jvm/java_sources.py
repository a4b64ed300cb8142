"""The Java classes of ``java/``, as texts that the JVM compiles.

Owns: the grouping of files, and their combination into one text.  Must not know the work of the
classes.

No jar is shipped: Spark's own compiler (Janino) compiles the texts.  Classes of the driver become
one compilation unit.  Classes of executors travel like Spark's generated code, as a text that
every executor compiles: they are nested in a class that Spark generates.  There they have neither
package nor imports, so they may import only the classes that Spark imports into generated code
(``GENERATED_CODE_IMPORTS``).  ``make lint`` compiles the files as they are.

Janino supports no lambdas and infers no generics, so collections are raw and their elements are
cast.  A call of a buffer's method is cast as well if later versions of Java changed its result.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final

from sparklog.dataframe.jvm.constants import constants_java

#: The package of the classes of the driver.
PACKAGE: Final = "sparklog.dataframe"

#: Nested in the loop that Spark generates for a query (``FusedPackExec``), or in ``PACKED_ROWS``.
PACKER: Final = (
    "Packer",
    "Section",
    "KeyPartition",
    "PieceOutlet",
    "PieceSender",
    "PartitionLeader",
    "TopicLeaders",
    "ProduceRequests",
    "SentRequest",
    "SentPiece",
    "BrokerConnection",
    "Wire",
)
#: Classes that Spark compiles and runs as generated code; the first one extends Spark's loop.
PACKED_ROWS: Final = ("PackedRows", *PACKER)
UNPACKED_ROWS: Final = ("UnpackedRows", "BatchReader")
#: Classes of the driver; the first class is the purpose of its unit.
OWN_SCANS: Final = ("OwnScansRule", "ScalaSeq")
PACKED_READS: Final = (
    "PackedReadsStrategy",
    "SwitchableStrategy",
    "ReadColumns",
    "BatchesScan",
    "UnpackExec",
    "ScalaSeq",
)
PACKED_WRITES: Final = (
    "PackedWritesStrategy",
    "SwitchableStrategy",
    "Packing",
    "PackerText",
    "PieceDestination",
    "PiecesWriteInfo",
    "PackRecordsExec",
    "FusedPackExec",
    "FusedLoop",
    "ScalaSeq",
)
THREAD_SESSIONS: Final = ("ThreadSessionsListener",)

#: The imports of Spark's ``CodeGenerator`` that the classes of executors use.
GENERATED_CODE_IMPORTS: Final = frozenset(
    {
        "org.apache.spark.sql.catalyst.InternalRow",
        "org.apache.spark.sql.catalyst.expressions.UnsafeRow",
        "org.apache.spark.unsafe.Platform",
        "org.apache.spark.unsafe.types.UTF8String",
    }
)

_FILE: Final = re.compile(
    r"/\*.*?\*/\s*package [\w.]+;\s*(?P<imports>(?:import [\w.$]+;\s*)*)", re.DOTALL
)


def compilation_unit(names: tuple[str, ...]) -> str:
    """The classes as one Java file, which Janino compiles in the driver."""
    imports = sorted({name for each in names for name in imports_of(each)})
    lines = "".join(f"import {name};\n" for name in imports)
    return f"package {PACKAGE};\n\n{lines}\n{inner_classes(names)}"


def generated_class(names: tuple[str, ...]) -> str:
    """The body of a class for Spark's ``CodeGenerator``; it creates the first of these."""
    generate = (
        "public Object generate(Object[] references) {\n"
        f"  return new {names[0]}(references);\n"
        "}\n"
    )
    return f"{generate}\n{inner_classes(names)}"


def inner_classes(names: tuple[str, ...]) -> str:
    """The classes and their ``Constants``, to be nested in another class or put into a file."""
    text = "\n".join(_body(name) for name in names)
    return f"{text}\n{constants_java(text)}"


def imports_of(name: str) -> list[str]:
    """The full names of the classes that the file of a class imports."""
    return re.findall(r"import ([\w.$]+);", _head(name)["imports"])


@cache
def source(name: str) -> str:
    """The file of a class."""
    return (files(__package__) / "java" / f"{name}.java").read_text(encoding="utf-8")


def _body(name: str) -> str:
    """A file without the package, imports and comments above the class."""
    return source(name)[_head(name).end() :]


def _head(name: str) -> re.Match[str]:
    found = _FILE.match(source(name))
    assert found is not None, f"{name}.java has no header comment and package"
    return found
