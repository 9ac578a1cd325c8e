"""Writes the common parts of the pages of ratings and soaks: frame, cards, sections, tables."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

_STYLE = Path(__file__).with_name("sheet.css")


def page_of(title: str, main: str) -> str:
    """Return a self-contained page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE.read_text()}</style></head>"
        f"<body><main>{main}</main></body></html>\n"
    )


def cards(shown: Iterable[tuple[str, str, str]], *, is_bad: bool = False) -> str:
    """Return cards with name, value and note; the first is highlighted, in red if `is_bad`."""
    each = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><small>{escape(words)}</small></div>"
        for name, value, words in shown
    )
    return f'<dl class="figures{" bad" if is_bad else ""}">{each}</dl>'


def careful(caveats: Sequence[str], *, title: str = "Be careful") -> str:
    if not caveats:
        return ""
    items = "".join(f"<li>{escape(caveat)}</li>" for caveat in caveats)
    return f'<section class="caveats"><h2>{escape(title)}</h2><ul>{items}</ul></section>'


def section(title: str, said: str, body: str) -> str:
    words = f"<p>{escape(said)}</p>" if said else ""
    return f"<section><h2>{escape(title)}</h2>{words}{body}</section>"


def table(heads: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table; `rows` are HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def facts(title: str, rows: Mapping[str, str]) -> str:
    cells = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows.items())
    return section(title, "", f'<table class="facts">{cells}</table>')
