from pathlib import Path

import pytest

from sparklog.driver.launcher.java import require_java
from sparklog.errors import StartError


def java_home(tmp_path: Path, answer: str, code: int = 0) -> dict[str, str]:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "25-ea" 2025-09-16', 25),
    ],
)
def test_a_new_enough_java_is_found(tmp_path: Path, answer: str, version: int) -> None:
    assert require_java(java_home(tmp_path, answer)) == version


@pytest.mark.parametrize(
    ("answer", "version"),
    [('java version "1.8.0_292"', 8), ('openjdk version "11.0.2" 2019-01-15', 11)],
)
def test_an_old_java_is_refused_with_the_remedy(tmp_path: Path, answer: str, version: int) -> None:
    with pytest.raises(StartError, match=f"is Java {version}, Spark needs Java 17; install Java"):
        require_java(java_home(tmp_path, answer))


def test_something_else_called_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="does not tell its version"):
        require_java(java_home(tmp_path, "hello", code=1))


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=f"JAVA_HOME={tmp_path} has no bin/java"):
        require_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_a_missing_java_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StartError) as caught:
        require_java({"PATH": str(tmp_path)})
    assert str(caught.value) == (
        "Java is missing and Spark needs it; install Java 17 or newer and set JAVA_HOME to it"
    )
