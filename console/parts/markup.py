"""Builds HTML and SVG from values, so that nothing reaches a page without being escaped.

`tag("p", text)` escapes every text except the results of other tags. Links lead only to our own
paths, so no event and no setting can smuggle in a `javascript:`.
"""

import html
from collections.abc import Iterable
from typing import TypeAlias


class Safe(str):
    """Finished markup; only this module creates it."""

    __slots__ = ()


Child: TypeAlias = Safe | str | int | Iterable["Child"] | None
Attribute: TypeAlias = str | int | float | bool | None

# Elements without content or an end tag.
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
# Attributes that a browser would follow or load.
_PATHS = frozenset({"href", "src", "action", "formaction"})
NOTHING = Safe("")
# Characters that are invisible or reverse the text around them, each with a visible substitute:
# browsers drop NUL, and reversed text can make an id look like another. Blanks and line ends stay.
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"},
    0x7F: "\u2421",
    **{
        code: f"\\u{code:04x}"
        for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    },
}


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Safe:
    """Return an element. `class_` is class, `aria_label` aria-label; None and False omit one."""
    opened = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    if name in _VOID:
        assert not children, f"<{name}> has no content"
        return Safe(opened)
    return Safe(f"{opened}{fragment(*children)}</{name}>")


def fragment(*children: Child) -> Safe:
    """Join several children."""
    return Safe("".join(map(_text, children)))


def document(*children: Child) -> bytes:
    # JSON allows half a surrogate pair, but UTF-8 cannot encode it.
    return f"<!doctype html>{fragment(*children)}".encode(errors="replace")


def _text(child: Child) -> str:
    match child:
        case None:
            return ""
        case Safe():
            return child
        case str() | int():
            return html.escape(str(child).translate(_VISIBLE))
        case _:
            return "".join(map(_text, child))


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if name == "aria-label":
        # A screen reader reads it aloud like visible text.
        text = text.translate(_VISIBLE)
    if name in _PATHS:
        assert text.startswith(("/", "#")), "links stay in here"
        assert not text.startswith("//"), "links stay in here"
    return f' {name}="{html.escape(text)}"'
