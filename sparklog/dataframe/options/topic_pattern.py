"""The option ``subscribePattern``: Java regular expressions for topic names.

Owns: the translation to Python's syntax, as far as topic names (ASCII letters, digits, ``.``, ``_``
and ``-``) can tell the difference; other patterns are refused.  Must not know the topics of a
cluster.
"""

import re
from collections.abc import Callable
from functools import partial

#: The characters of topic names that ``\p{...}`` selects, for use inside ``[...]``.
_CLASSES = {
    **dict.fromkeys(("Lower", "javaLowerCase", "Ll", "IsLowercase"), "a-z"),
    **dict.fromkeys(("Upper", "javaUpperCase", "Lu", "IsUppercase"), "A-Z"),
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic", "IsLatin"), "a-zA-Z"),
    **dict.fromkeys(("Digit", "N", "Nd", "IsDigit"), "0-9"),
    **dict.fromkeys(("Alnum",), "a-zA-Z0-9"),
    **dict.fromkeys(("Punct", "P", "IsPunctuation"), "._\\-"),
    **dict.fromkeys(("Graph", "Print", "ASCII"), "a-zA-Z0-9._\\-"),
}
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|\\(?P<negated>[pP])(?:\{(?P<class>\w+)\}|(?P<letter>\w))"
    r"|\\k<(?P<reference>\w+)>"
    r"|(?P<escape>\\.)"
    r"|(?P<group>\(\?<(?![=!]))"
    r"|(?P<and>&&)"
    r"|(?P<open>\[)|(?P<close>\])"
    r"|(?P<other>.)",
    re.DOTALL,
)


def topic_matcher(java: str) -> Callable[[str], bool]:
    """A function: whether a part of a name matches, as in Spark (``SubscribePatternStrategy``).

    Raises ValueError for an invalid or unsupported pattern.
    """
    if not java.strip():
        raise ValueError("expected a regular expression for names of topics")
    try:
        compiled = re.compile(_python(java.strip()), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"no regular expression ({error})") from None
    return partial(_matches, compiled)


def _matches(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.search(name) is not None


def _python(java: str) -> str:
    parts: list[str] = []
    in_class = False
    for token in _TOKEN.finditer(java):
        kind, text = token.lastgroup, token.group()
        if token["quoted"] is not None:
            parts.append(re.escape(token["quoted"]))
        elif kind in ("class", "letter"):
            parts.append(_class(token["class"] or token["letter"], token["negated"], in_class))
        elif kind == "reference":
            parts.append(f"(?P={token['reference']})")
        elif kind == "escape":
            parts.append({"\\z": "\\Z", "\\h": "[ ]", "\\R": "\\n"}.get(text, text))
        elif kind == "group":
            parts.append("(?P<")
        elif in_class and kind in ("and", "open"):
            raise ValueError(f"{text} inside [...] is not supported: write the characters out")
        else:
            in_class = (in_class or kind == "open") and kind != "close"
            parts.append(text)
    return "".join(parts)


def _class(name: str, letter: str, in_class: bool) -> str:
    if name not in _CLASSES:
        raise ValueError(f"\\{letter}{{{name}}} is not supported: write the characters out")
    if in_class and letter == "P":
        raise ValueError(f"\\P{{{name}}} inside [...] is not supported: write the characters out")
    if in_class:
        return _CLASSES[name]
    return f"[{'^' if letter == 'P' else ''}{_CLASSES[name]}]"
