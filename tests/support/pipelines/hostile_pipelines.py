"""Sixty malicious documents and events, by what they attack: 24 from a review, and more.

Each is for a pipeline from one stream to another. It may be refused; if it is not, its event may
cost its own pipeline any amount.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Hostile:
    """A pipeline to put, and the events to post to it if it is accepted."""

    kind: str
    name: str
    schema: str = "id STRING, n BIGINT, price DOUBLE, tags ARRAY<STRING>"
    steps: list[Any] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    # The event as text, because some have a number that no JSON library writes.
    event: str = '{"id": "a", "n": 1, "price": 1.5, "tags": ["x"]}'

    def document(self, source: str, target: str) -> dict[str, Any]:
        fields = {"from": {"stream": source}, "to": [{"stream": target}]}
        return {**fields, "schema": self.schema, "steps": self.steps, **self.more}


def _nested(open_: str, inner: str, close: str, times: int) -> str:
    return open_ * times + inner + close * times


def _where(kind: str, name: str, text: str, **more: Any) -> Hostile:
    return Hostile(kind, name, steps=[{"where": text}], **more)


def _select(kind: str, name: str, **members: str) -> Hostile:
    return Hostile(kind, name, steps=[{"select": members}])


_WIDE = ", ".join(f"c{nth}: INT" for nth in range(490))
_LONG = "x" * 1_000_000
_WAYS = "|".join(f"a{nth:c}" for nth in range(65, 91))
_MANY = f'{{"id": "{_LONG}"}}'

HOSTILE = [
    # Memory.
    _where("memory", "hex-of-hex", f"length({_nested('hex(', 'id', ')', 40)}) > 0"),
    _where("memory", "base64-of-base64", f"length({_nested('base64(', 'id', ')', 40)}) > 0"),
    _where(
        "memory",
        "json-of-json",
        f"length({_nested('to_json(named_struct(' + repr('a') + ', ', 'id', '))', 12)}) > 0",
    ),
    _where("memory", "flat-lists", "size(flatten(array_repeat(array_repeat(id, 1000), 1000))) > 0"),
    _where("memory", "list-of-lists", "size(array_repeat(array_repeat(tags, 1000), 1000)) > 0"),
    _select("memory", "split-letters", **{f"m{n}": "split(concat(id,'N'), '')" for n in range(20)}),
    Hostile(
        "memory",
        "wide-structs",
        schema=f"a ARRAY<STRUCT<{_WIDE}>>",
        steps=[{"where": "size(a) > 0"}],
        event='{"a": [' + ",".join(["{}"] * 300_000) + "]}",
    ),
    _select("memory", "structs-of-text", a=f"from_json(id, 'a ARRAY<STRUCT<{_WIDE}>>')"),
    _where("memory", "concat", "length(concat(" + ", ".join(["id"] * 16) + ")) > 0", event=_MANY),
    Hostile(
        "memory",
        "many-rows",
        steps=[{"explode": {"tag": "tags"}}],
        event='{"tags": [' + ",".join(['"x"'] * 200_000) + "]}",
    ),
    # Numbers.
    Hostile("numbers", "decimal", schema="x DECIMAL(38,0)", event='{"x": 1e100000000}'),
    Hostile(
        "numbers",
        "cast",
        steps=[{"select": {"d": "CAST(id AS DECIMAL(10,2))"}}],
        event='{"id": "1e-100000000"}',
    ),
    Hostile(
        "numbers",
        "function",
        steps=[{"select": {"d": "decimal(id)"}}],
        event='{"id": "1e-400000000"}',
    ),
    Hostile(
        "numbers",
        "in-its-tests",
        steps=[{"select": {"d": "CAST(id AS DECIMAL(10,2))"}}],
        more={"tests": [{"given": [{"id": "1e-400000000"}], "expect": [{"d": None}]}]},
    ),
    _select("numbers", "written-out", d="CAST('1e-400000000' AS DECIMAL(10,2))"),
    Hostile("numbers", "digits", schema="x DECIMAL(38,0)", event='{"x": ' + "9" * 900_000 + "}"),
    Hostile("numbers", "digits-of-long", schema="x BIGINT", event='{"x": ' + "9" * 900_000 + "}"),
    Hostile("numbers", "exponent", schema="x DOUBLE", event='{"x": 1e999999999}'),
    _select("numbers", "round", d="round(price, 1000000000)"),
    # Patterns.
    _where("patterns", "nested-repeats", "id RLIKE '(a+)+$'"),
    _where("patterns", "many-ways", f"left(id, 1024) RLIKE 'a*a*({_WAYS})'"),
    _where("patterns", "many-repeats", "left(id, 1000) RLIKE '(.*)(.*)(.*)(.*)x'"),
    _where(
        "patterns",
        "many-patterns",
        " OR ".join([f"left(id, 1024) RLIKE 'a*a*{n}'" for n in range(50)]),
        event='{"id": "' + "a" * 1_024 + '"}',
    ),
    _where("patterns", "question-marks", "id RLIKE '" + "a?" * 30 + "a" * 30 + "'"),
    _where("patterns", "look-ahead", "left(id, 1000) RLIKE '(?=(a+))b'"),
    _where("patterns", "back-reference", r"left(id, 1000) RLIKE '(a*)*\\1b'"),
    _select("patterns", "replace", a="regexp_replace(id, '(x+x+)+y', '')"),
    _where("patterns", "like", "id LIKE '%a%b%c%d%e%f%g%'", event=_MANY),
    _select("patterns", "split", a="split(id, '(a*)*')"),
    # Depth.
    _where("depth", "brackets", f"{_nested('(', 'n', ')', 5_000)} > 0"),
    _where("depth", "nots", "NOT " * 3_000 + "n > 0"),
    _where("depth", "minus", "- " * 3_000 + "n > 0"),
    _where("depth", "cases", "CASE WHEN n > 0 THEN " * 200 + "n" + " END" * 200 + " > 0"),
    Hostile("depth", "lists-of-type", schema=f"a {_nested('ARRAY<', 'INT', '>', 500)}"),
    Hostile("depth", "structs-of-type", schema=f"a {_nested('STRUCT<a: ', 'INT', '>', 500)}"),
    Hostile("depth", "lists-of-event", event=_nested("[", "1", "]", 400_000)),
    Hostile("depth", "objects-of-event", event=_nested('{"id":', "1", "}", 100_000)),
    _where("depth", "calls", f"{_nested('upper(', 'id', ')', 600)} = 'A'"),
    # Width.
    _where("width", "sum", "n" + " + n" * 20_000 + " > 0"),
    _where("width", "in", f"n IN ({', '.join(map(str, range(50_000)))})"),
    _select("width", "members", **{f"m{nth}": "id" for nth in range(5_000)}),
    Hostile("width", "columns", schema=", ".join(f"c{nth} STRING" for nth in range(5_000))),
    Hostile("width", "steps", steps=[{"where": "n > 0"}] * 2_000),
    Hostile("width", "outputs", more={"to": [{"stream": "hostile-out", "when": "n > 0"}] * 500}),
    Hostile("width", "tests", more={"tests": [{"given": [{"n": 1}], "expect": []}] * 2_000}),
    _where("width", "arguments", f"greatest({', '.join(['n'] * 5_000)}) > 0"),
    Hostile("width", "one-step", steps=[{"where": "n > 0 AND " * 400 + "n > 0"}] * 20),
    # Folding.
    _select("folding", "repeats", a="repeat(repeat(repeat('x', 1000), 1000), 1000)"),
    _where("folding", "lists", "size(array_repeat(array_repeat(array(), 1000), 1000)) > 0"),
    _where(
        "folding", "sequences", "size(transform(sequence(1, 1000), x -> repeat('x', 1000))) > 0"
    ),
    _select("folding", "padding", a="lpad(rpad('x', 1000, 'y'), 1000000000, 'z')"),
    _select("folding", "spaces", a="space(2000000000)"),
    _select("folding", "megabyte", a="repeat(repeat('x', 1000), 1000)"),
    # Time.
    _where("time", "search", "instr(id, id) > 0", event=_MANY),
    _where("time", "every-with-every", "exists(tags, t -> array_contains(tags, t))"),
    _select("time", "transform", a="transform(tags, t -> transform(tags, u -> t || u))"),
    _where("time", "statement", "(SELECT max(id) FROM range(1000000000000)) > n"),
    Hostile(
        "time",
        "windows",
        steps=[{"window": {"every": "1 second", "by": ["id"], "compute": {"n": "count(*)"}}}],
    ),
    Hostile(
        "time",
        "once",
        steps=[{"dedupe": {"key": "repeat(id, 30)", "within": "1 day"}}],
        event=_MANY,
    ),
    _where("time", "sorting", "size(sort_array(split(id, 'x'))) > 0", event=_MANY),
]
