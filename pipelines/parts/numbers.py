"""Parses users' expressions so that each number in them fits its type, or is null.

Spark's own arithmetic wraps: 9223372036854775807 + 1 is negative, and so is int(3000000000).
"""

import re
from collections.abc import Callable
from functools import lru_cache
from operator import is_
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.parts.decimals import NUMBER

# Expressions without any of these have no number that may not fit, and are left unchanged.
_MAY_NOT_FIT = re.compile(
    r"[-+*]|div|dec|numeric|int|byte|short|long|ceil|floor|abs|negative|round|timestamp",
    re.IGNORECASE,
)
_IT = "hifi:it"
_OVERFLOWS = frozenset({"Add", "Subtract", "Multiply"})
# Whole types, by the class of the type, and by the function that converts to it.
_WHOLE = {name: name.upper() for name in ("tinyint", "smallint", "int", "bigint")} | {
    "ByteType": "TINYINT",
    "ShortType": "SMALLINT",
    "IntegerType": "INT",
    "LongType": "BIGINT",
}
# Spark's own cast of a text drops its fraction, and returns null if the number does not fit.
_CAST_WHOLE = (
    f"CASE WHEN typeof(`{_IT}`) = 'string' THEN CAST(`{_IT}` AS KIND)"
    f" ELSE TRY_CAST(`{_IT}` AS KIND) END"
)
# Java would spend hours writing out the hundred million digits of a text like 1e100000000.
_DECIMAL_FROM = (
    f"CASE WHEN typeof(`{_IT}`) != 'string' OR `{_IT}` RLIKE r'{NUMBER}' THEN `{_IT}` END"
)
# Spark turns larger numbers into the largest BIGINT, and smaller ones into the smallest.
_ROUNDED_FROM = (
    f"CASE WHEN typeof(`{_IT}`) NOT IN ('double', 'float')"
    f" OR (`{_IT}` >= -9.223372036854775808E18D AND `{_IT}` < 9.223372036854775808E18D)"
    f" THEN `{_IT}` END"
)
# Spark turns seconds beyond its own range into the last moment of that range, 294,000 years away.
_MOMENT_FROM = (
    f"CASE WHEN typeof(`{_IT}`) IN ('string', 'date', 'timestamp', 'timestamp_ntz')"
    f" OR CAST(`{_IT}` AS DOUBLE) BETWEEN -9.2E12D AND 9.2E12D THEN `{_IT}` END"
)
_ROUND = frozenset({"ceil", "ceiling", "floor"})


def expression(text: str) -> Column:
    """Return a user's expression, in which no number wraps into another."""
    return _fitting(SparkSession.active(), text) if _MAY_NOT_FIT.search(text) else F.expr(text)


# Cached, as some jobs make a new plan of the same expressions: those that may repeat events.
@lru_cache(maxsize=1_000)
def _fitting(session: SparkSession, text: str) -> Column:
    return _fitting_of(session).read(text)


class _Fitting:
    """Changes the tree of an expression whose types are not known yet."""

    def __init__(self, session: SparkSession) -> None:
        spark: Any = session
        jvm = spark._jvm  # noqa: SLF001 - nothing else reaches it
        self._parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - the same
        # Keep these: each look-up of a name asks the JVM, which takes longer than the calls.
        self._new_list = jvm.java.util.ArrayList
        self._column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
        self._as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._try, self._ansi = expressions.EvalMode.TRY(), expressions.EvalMode.ANSI()
        self._try_eval = expressions.TryEval
        # Each fails where a number does not fit, if its last argument is true.
        self._strict = {
            "UnaryMinus": expressions.UnaryMinus,
            "negative": expressions.UnaryMinus,
            "abs": expressions.Abs,
            "round": expressions.Round,
            "bround": expressions.BRound,
        }

    def read(self, text: str) -> Column:
        return Column(self._column(self._made(self._parser.parseExpression(text))))

    def _made(self, node: Any) -> Any:
        node = self._rebuilt(node, self._made)
        if (kind := _kind(node)) in _OVERFLOWS:
            return self._with(node, self._try)
        target = _kind(node.dataType()) if kind == "Cast" else _function(node) or kind
        if whole := _WHOLE.get(target):
            return self._put_in(_CAST_WHOLE.replace("KIND", whole), node)
        if target in {"DecimalType", "decimal"}:
            return self._rebuilt(node, lambda _: self._put_in(_DECIMAL_FROM, node))
        if target in {"TimestampType", "timestamp"}:
            return self._rebuilt(node, lambda _: self._put_in(_MOMENT_FROM, node))
        if target in _ROUND and node.children().size() == 1:
            return self._rebuilt(node, lambda _: self._put_in(_ROUNDED_FROM, node))
        return self._strictly(target, node)

    def _strictly(self, target: str, node: Any) -> Any:
        """Make a number null where it does not fit, for functions that can fail there."""
        if target == "IntegralDivide":
            return self._try_eval(self._with(node, self._ansi))
        if (strict := self._strict.get(target)) is None:
            return node
        given = [node.children().apply(index) for index in range(node.children().size())]
        is_whole = len(given) == (2 if "round" in target else 1)
        return self._try_eval(strict(*given, True)) if is_whole else node

    def _with(self, node: Any, mode: Any) -> Any:
        """Copy the arithmetic with another mode for numbers that do not fit."""
        how = node.evalContext()
        how = how.copy(mode, how.allowDecimalPrecisionLoss())
        return node.copy(node.left(), node.right(), how)

    def _put_in(self, template: str, node: Any) -> Any:
        """Return the template, with its name replaced by the first child of the node."""
        child = node.children().apply(0)

        def put(each: Any) -> Any:
            return child if _kind(each) == "UnresolvedAttribute" else self._rebuilt(each, put)

        return put(self._parser.parseExpression(template))

    def _rebuilt(self, node: Any, change: Callable[[Any], Any]) -> Any:
        """Return the node with its children changed."""
        children = node.children()
        before = [children.apply(index) for index in range(children.size())]
        after = [change(child) for child in before]
        if all(map(is_, before, after)):
            return node
        changed = self._new_list()
        for child in after:
            changed.add(child)
        return node.withNewChildren(self._as_scala(changed).toSeq())


_fitting_of = lru_cache(maxsize=1)(_Fitting)


def _kind(node: Any) -> str:
    # The class name of a Scala object ends in a dollar sign.
    return str(node.getClass().getSimpleName()).removesuffix("$")


def _function(node: Any) -> str:
    if _kind(node) != "UnresolvedFunction":
        return ""
    return str(node.nameParts().mkString(".")).lower()
