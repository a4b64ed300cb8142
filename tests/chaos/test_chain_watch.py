"""Each input of a chain has to have one output."""

from uuid import UUID

from tests.chaos.chain_member import output_of
from tests.chaos.chain_watch import verdict
from tests.simulation.events import LogId

ONE, TWO = (LogId("t", UUID(int=1), number) for number in (0, 1))
ENDS = {ONE: 2, TWO: 1}
OUTPUTS = [output_of(ONE, 0), output_of(ONE, 1), output_of(TWO, 0)]


def test_the_outputs_may_come_in_any_order() -> None:
    assert verdict(ENDS, OUTPUTS) == []
    assert verdict(ENDS, reversed(OUTPUTS)) == []


def test_lost_and_doubled_outputs_are_named() -> None:
    wrong = "and 0 other offsets have a wrong number"
    assert verdict(ENDS, OUTPUTS[1:]) == [f"offset 0 of {ONE} has 0 outputs, {wrong}"]
    assert verdict(ENDS, [*OUTPUTS, OUTPUTS[2]]) == [f"offset 0 of {TWO} has 2 outputs, {wrong}"]


def test_an_output_without_an_input_is_named() -> None:
    assert verdict(ENDS, [*OUTPUTS, b"t/0/2"]) == ["1 outputs of no input, as b't/0/2'"]
