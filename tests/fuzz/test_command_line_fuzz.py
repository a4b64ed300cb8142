"""A few of the argument lists that ``make fuzz`` goes on with."""

from tests.fuzz.command_line_fuzz import LEFT_OUT, Fuzzer, fuzzer
from tests.support.command_table import all_commands

SEED = 17
LISTS = 150


def test_no_arguments_and_no_files_are_a_traceback() -> None:
    with fuzzer(SEED) as fuzz:
        finds = [find for _ in range(LISTS) if (find := fuzz.run_one()) is not None]
        assert finds == []
        assert fuzz.codes.keys() >= {0, 1, 2}
        reached = {tuple(name.split()) for name in fuzz.commands}
        assert reached == {each.path for each in all_commands()} - LEFT_OUT


def test_the_same_seed_gives_the_same_lists(tmp_path: object) -> None:
    from pathlib import Path
    from random import Random

    lists = [
        [fuzz._arguments(Random(f"5 {number}")) for number in range(50)]
        for fuzz in (Fuzzer(5, "h:1", Path(__file__).parent) for _ in range(2))
    ]
    assert lists[0] == lists[1]
