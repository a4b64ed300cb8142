"""The check for Java, which Spark needs, before a session is created.

Owns: one clear error message in place of a stack trace of Spark's start script.  Must not know
Spark.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sparklog.errors import StartError

JAVA_MINIMUM = 17
_REMEDY = f"install Java {JAVA_MINIMUM} or newer and set JAVA_HOME to it"


def require_java(environment: Mapping[str, str] | None = None) -> int:
    """Check the Java that Spark will use.

    Args:
        environment: the environment variables; None for those of this process.

    Returns:
        The major version of that Java.

    Raises:
        StartError: there is no Java, or it is too old for Spark 4.
    """
    environment = os.environ if environment is None else environment
    program = _find_java(environment)
    version = _major_version(_ask(program))
    if version is None:
        raise StartError(f"{program} does not tell its version; {_REMEDY}")
    if version < JAVA_MINIMUM:
        raise StartError(f"{program} is Java {version}, Spark needs Java {JAVA_MINIMUM}; {_REMEDY}")
    return version


def _find_java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not program.is_file():
            raise StartError(f"JAVA_HOME={home} has no bin/java; {_REMEDY}")
        return str(program)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        raise StartError(f"Java is missing and Spark needs it; {_REMEDY}")
    return found


def _ask(program: str) -> str:
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"{program} cannot be run ({error}); {_REMEDY}") from error
    return done.stderr + done.stdout


def _major_version(text: str) -> int | None:
    """``17.0.15`` -> 17, ``1.8.0_292`` -> 8."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major
