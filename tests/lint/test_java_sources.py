"""The Java files keep to their rooms, and javac says what is wrong with them."""

import re
from pathlib import Path

import pytest

from sparklog.dataframe.jvm import java_sources
from sparklog.dataframe.jvm.constants import constants
from sparklog.dataframe.jvm.java_sources import (
    GENERATED_CODE_IMPORTS,
    OWN_SCANS,
    PACKED_READS,
    PACKED_ROWS,
    PACKED_WRITES,
    THREAD_SESSIONS,
    UNPACKED_ROWS,
    imports_of,
    source,
)
from tests.lint import compile_java
from tests.lint.test_length import LIMIT_LINES

FILES = sorted(compile_java.FOLDER.glob("*.java"))
DRIVER = {*OWN_SCANS, *PACKED_READS, *PACKED_WRITES, *THREAD_SESSIONS}
EXECUTORS = {*PACKED_ROWS, *UNPACKED_ROWS}
#: Classes that know bytes alone.
WITHOUT_SPARK = ("BatchReader", "ProduceRequests", "Section", "SentPiece", "SentRequest", "Wire")
#: Steps of Spark's generated code: they extend its loop.
STEPS = {"PackedRows", "UnpackedRows"}
#: Spark's plans and planner.
PLANS = re.compile(
    r"org\.apache\.spark\.sql\.(execution\.(?!metric\.)|classic|catalyst\.(plans|rules|trees))"
)


def test_every_class_has_a_place() -> None:
    assert {path.stem for path in FILES} == DRIVER | EXECUTORS
    assert not DRIVER & EXECUTORS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_what_it_owns(path: Path) -> None:
    text = path.read_text()
    header = text[: text.index("*/")]
    assert re.search(r"^ \* Owns: ", header, re.MULTILINE)
    assert re.search(r"^ \* Must not know: ", header, re.MULTILINE)
    assert f"class {path.stem}" in text
    lines = text.splitlines()
    assert len(lines) <= LIMIT_LINES
    assert [line for line in lines if len(line) > 100] == []


@pytest.mark.parametrize("name", sorted(EXECUTORS))
def test_a_class_of_executors_imports_what_generated_code_has(name: str) -> None:
    assert set(imports_of(name)) <= GENERATED_CODE_IMPORTS


@pytest.mark.parametrize("name", sorted(EXECUTORS - STEPS))
def test_a_class_of_executors_knows_no_plans(name: str) -> None:
    assert PLANS.findall(source(name)) == []


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_a_class_that_knows_bytes_knows_no_spark(name: str) -> None:
    assert "org.apache.spark" not in source(name)


def test_every_constant_is_used() -> None:
    texts = "".join(source(path.stem) for path in FILES)
    assert set(re.findall(r"\bConstants\.(\w+)", texts)) == set(constants())


def test_a_text_has_the_constants_that_it_mentions() -> None:
    packed = java_sources.generated_class(PACKED_ROWS)
    assert "  static final int MURMUR2_SEED = -1756908916;\n" in packed
    assert "READ_COLUMNS" not in packed
    assert packed.count("class Packer ") == 1
    assert "import " not in packed


def test_an_error_of_a_class_is_told_unless_it_is_exempt() -> None:
    exempt = "".join(f"java/{name}.java:1: error: no\n" for name in compile_java.EXEMPT)
    other = "java/Packer.java:7: error: ';' expected\n"
    assert compile_java.refusal(exempt) == ""
    assert compile_java.refusal(exempt + other) == exempt + other
    assert compile_java.refusal("error: file not found\n") == "error: file not found\n"
    assert compile_java.refusal("") == "javac takes these, which are exempt: FusedLoop\n"


def test_javac_finds_an_error(tmp_path: Path) -> None:
    compiler = compile_java.javac()
    if compiler is None:
        pytest.skip("no javac")
    wrong = tmp_path / "Wrong.java"
    wrong.write_text(
        "package sparklog.dataframe;\nfinal class Wrong { int found = Constants.NONE; }\n"
    )
    said = compile_java.compile_all(compiler, [wrong])
    assert "Wrong.java:2: error: cannot find symbol" in compile_java.refusal(said)
