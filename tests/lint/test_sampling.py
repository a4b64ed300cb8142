"""What ``make test`` leaves out exists, and every test that is sampled keeps a case."""

from pathlib import Path

from tests.support.sampling import LEFT_OUT, STEPS, left_out

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_named_is_there() -> None:
    for place in STEPS:
        assert (ROOT / place).exists()
    for file, tests in LEFT_OUT.items():
        for test in tests:
            assert f"def {test}(" in (ROOT / file).read_text()


def test_neighbours_keep_other_cases_and_a_test_without_cases_runs() -> None:
    halved, thirded = "tests/peers/test_x.py", "tests/spark/test_x.py"
    whole = "tests/unit/cli/test_x.py"
    without_cases = [f"{halved}::test_a", f"{thirded}::test_a", f"{whole}::test_a"]
    left = "tests/spark/test_examples.py::test_quickstart"
    given = [*without_cases, left, *cases(f"{whole}::test_b", 2)]
    given += cases(f"{halved}::test_b", 1) + cases(f"{halved}::test_c", 3)
    given += cases(f"{thirded}::test_b", 2) + cases(f"{thirded}::test_c", 7)
    assert list(left_out(given)) == [
        left,
        f"{halved}::test_c[0]",
        f"{halved}::test_c[2]",
        f"{thirded}::test_b[1]",
        *(f"{thirded}::test_c[{case}]" for case in (1, 2, 4, 5)),
    ]


def cases(test: str, count: int) -> list[str]:
    return [f"{test}[{case}]" for case in range(count)]
