"""Java's regular expressions for names of topics."""

import pytest

from sparklog.dataframe.options.topic_pattern import topic_matcher

NAMES = ("a", "abc", "a.c", "A1", "x_1", "x-2", "aaa")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.*", ("a", "abc", "a.c", "aaa")),
        ("c", ("abc", "a.c")),
        ("^a$", ("a",)),
        ("a.c|x.2", ("abc", "a.c", "x-2")),
        (r"\Qa.c\E", ("a.c",)),
        (r"\Qa.c", ("a.c",)),
        (r"^\p{Lower}+$", ("a", "abc", "aaa")),
        (r"[\p{Lu}x].*\d", ("A1", "x_1", "x-2")),
        (r"\pL\P{L}\d", ("x_1", "x-2")),
        (r"^(?<first>a)\k<first>*$", ("a", "aaa")),
        (r"(?<first>a)(?=bc).*", ("abc",)),
        (r"(?<![x])x.1\z", ("x_1",)),
        ("(?i)a1", ("A1",)),
        ("a{3}", ("aaa",)),
        ("^a++$", ("a", "aaa")),
        (r"x[_\-][^\]1]", ("x-2",)),
    ],
)
def test_names_of_which_a_part_matches(pattern: str, names: tuple[str, ...]) -> None:
    assert tuple(filter(topic_matcher(pattern), NAMES)) == names


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (" ", "expected a regular expression"),
        ("a(", "no regular expression"),
        ("[a-z&&[^b]]", "&& inside"),
        ("[a[bc]]", r"\[ inside"),
        (r"\p{Greek}", "Greek} is not supported"),
        (r"[\P{L}]", "not supported: write the characters out"),
    ],
)
def test_what_is_no_pattern_or_not_for_us(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        topic_matcher(pattern)
