"""Shows JSON with colours, one member on each line, without changing any part of it."""

import json
import re

from console.parts.markup import Safe, fragment, tag

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_OPENS, _CLOSES = frozenset("{["), frozenset("}]")
_ENDS, _NAMES = frozenset(","), frozenset(":")
# Deeper parts get no further indent: nobody reads them.
_DEPTH_MAX = 50


def json_lines(text: str) -> Safe:
    """Indent JSON, with numbers and strings as written; return other text unchanged."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return fragment(text)
    tokens = _TOKEN.findall(text)
    parts: list[str | Safe] = []
    depth = 0
    for at, token in enumerate(tokens):
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        if token in _OPENS:
            depth += 1
            is_empty = after in _CLOSES and after != ""
            parts += [token] if is_empty else [token, _line(depth)]
        elif token in _CLOSES:
            depth -= 1
            is_empty = tokens[at - 1] in _OPENS
            parts += [token] if is_empty else [_line(depth), token]
        elif token in _ENDS:
            parts += [token, _line(depth)]
        elif token in _NAMES:
            parts.append(": ")
        else:
            kind = "other"
            if token.startswith('"'):
                kind = "name" if after == ":" else "text"
            parts.append(tag("span", token, class_=f"j-{kind}"))
    return fragment(*parts)


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, _DEPTH_MAX)
