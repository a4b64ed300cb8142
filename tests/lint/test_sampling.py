"""What ``make test`` leaves out exists, and every test that is halved keeps a case."""

from pathlib import Path

from tests.support.sampling import HALVED, LEFT_OUT, left_out

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_named_is_there() -> None:
    for place in HALVED:
        assert (ROOT / place).exists()
    for file, tests in LEFT_OUT.items():
        for test in tests:
            assert f"def {test}(" in (ROOT / file).read_text()


def test_every_second_case_is_left_out_and_none_of_a_test_without_cases() -> None:
    halved, other = "tests/spark/test_direct_writes.py", "tests/unit/cli/test_x.py"
    ids = [
        f"{halved}::test_a[1]",
        f"{halved}::test_b[only]",
        f"{halved}::test_a[2]",
        f"{halved}::test_a[3]",
        f"{halved}::test_c",
        f"{other}::test_a[1]",
        f"{other}::test_a[2]",
        "tests/spark/test_examples.py::test_quickstart",
    ]
    assert list(left_out(ids)) == [ids[-1], ids[2]]
    more = [f"{halved}::test_d[{case}]" for case in "123"]
    assert list(left_out([*ids, *more])) == [ids[-1], ids[2], more[1]]
