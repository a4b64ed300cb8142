"""javac over the Java classes of ``sparklog/dataframe/jvm/java``, against PySpark's jars.

``make lint`` calls it.  A user's JVM compiles the same files with Spark's Janino, in the first
query that needs them; here an error shows before.  A digest of everything that javac reads is kept
in ``.cache``, so that nothing is compiled twice.  Without a JDK it says so and goes on.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from sparklog.dataframe.jvm.constants import constants, constants_java
from sparklog.dataframe.jvm.java_sources import PACKAGE

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "sparklog" / "dataframe" / "jvm" / "java"
STAMP = ROOT / ".cache" / "compiled-java"

#: Classes that javac refuses although Janino and the JVM take them, and why.  Only ever shorten it.
EXEMPT = {
    "FusedLoop": "its base is a Scala class whose methods, as javac reads them, contradict the "
    "generic interface UnaryLike that it implements",
}

_ERROR = re.compile(r"^\S*?(\w+)\.java:\d+: error: ", re.MULTILINE)


def javac() -> str | None:
    """The compiler of ``JAVA_HOME``, or else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    return (shutil.which("javac", path=f"{home}/bin") if home else None) or shutil.which("javac")


def constants_file() -> str:
    """``Constants.java`` with every constant; at run time, a text has those that it mentions."""
    mentioned = " ".join(f"Constants.{name}" for name in constants())
    return f"package {PACKAGE};\n\n{constants_java(mentioned)}"


def digest(compiler: str) -> str:
    """Of the classes, the constants, PySpark and the compiler."""
    parts = [compiler, str(os.stat(compiler).st_mtime_ns), pyspark.__version__, constants_file()]
    parts += [Path(__file__).read_text()]
    parts += [path.name + path.read_text() for path in sorted(FOLDER.glob("*.java"))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_all(compiler: str, files: list[Path]) -> str:
    """What javac says of these files, beside ``Constants.java``."""
    with tempfile.TemporaryDirectory() as folder:
        constant = Path(folder) / "Constants.java"
        constant.write_text(constants_file())
        command = [compiler, "-proc:none", "-Xlint:none", "-XDshould-stop.ifError=FLOW"]
        command += ["-cp", f"{Path(pyspark.__file__).parent / 'jars'}/*", "-d", folder]
        done = subprocess.run(
            [*command, str(constant), *map(str, files)], capture_output=True, text=True
        )
    return done.stderr


def refusal(output: str) -> str:
    """What is wrong, given what javac says of all classes; empty if nothing is."""
    wrong = set(_ERROR.findall(output))
    if wrong - EXEMPT.keys() or (not wrong and "error:" in output):
        return output
    unneeded = sorted(EXEMPT.keys() - wrong)
    return f"javac takes these, which are exempt: {', '.join(unneeded)}\n" if unneeded else ""


def main() -> int:
    compiler = javac()
    if compiler is None:
        print("Java classes: not compiled, because there is no javac (a JDK has it)")
        return 0
    due = digest(compiler)
    if STAMP.is_file() and STAMP.read_text() == due:
        print("Java classes: compiled before")
        return 0
    found = refusal(compile_all(compiler, sorted(FOLDER.glob("*.java"))))
    if found:
        print(found, end="", file=sys.stderr)
        return 1
    STAMP.parent.mkdir(exist_ok=True)
    STAMP.write_text(due)
    print("Java classes: javac takes them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
