"""Lists what an expression may use of Spark: operators, functions, and literal arguments.

No entry throws on any event, differs between two runs, reads anything but the event, or takes more
time than the event's length allows. Anything else is refused, and the session lacks its functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Operators, by their names in Spark's parser: those whose result has no bytes of the event,
_JUDGING = """
    And EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual In IsNotNull IsNull LessThan
    LessThanOrEqual Like Not Or RLike Add BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Divide
    IntegralDivide Multiply Remainder StringLocate Subtract UnaryMinus UnaryPositive
"""
# and those whose result may have them.
_CARRYING = """
    CaseWhen Cast Concat CreateNamedStruct LambdaFunction Literal Overlay StringTrim
    StringTrimLeft StringTrimRight Substring UnresolvedAttribute UnresolvedExtractValue
    UnresolvedFunction UnresolvedNamedLambdaVariable
"""
# Functions with any arguments, in the same two kinds.
_FIGURES = """
    ascii between bit_length char_length character_length crc32 endswith equal_null find_in_set hash
    isnan isnotnull isnull len length luhn_check md5 octet_length sha sha1 sha2 startswith typeof
    xxhash64

    abs acos asin atan atan2 bit_count bround cbrt ceil ceiling conv cos degrees div exp expm1 floor
    hypot ln log log10 log1p log2 mod nanvl negative pmod positive pow power radians rint shiftleft
    shiftright shiftrightunsigned sign signum sin sqrt tan try_add try_divide try_multiply
    try_subtract bigint boolean date decimal double float int smallint timestamp tinyint

    date_diff date_from_unix_date datediff day dayofmonth dayofweek dayofyear hour last_day minute
    month months_between quarter second to_date try_to_timestamp unix_date unix_micros unix_millis
    unix_seconds weekday weekofyear year

    array_contains array_position array_size cardinality json_array_length map_contains_key size
"""
_TEXTS_AND_LISTS = """
    base64 btrim char chr coalesce concat greatest hex if ifnull initcap lcase least left lower
    ltrim mask nullif nvl nvl2 overlay reverse right rtrim soundex string substr substring translate
    trim try_url_decode ucase unhex upper url_encode binary

    array array_append array_compact array_max array_min array_prepend array_remove arrays_zip
    flatten get json_object_keys map_entries map_keys map_values sort_array struct to_json
"""

Kind = Literal["text", "needle", "number", "index", "count", "scale", "format", "type", "pattern"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How a function may be called."""

    # The arguments that must be literals, by their number from 0, and their kinds.
    written: Mapping[int, Kind] = field(default_factory=dict)
    arguments_max: int = 16
    # Whether its result may have bytes of the event.
    carries: bool = True
    # Whether it may be used within x -> ...
    is_for_elements: bool = True


def _figure(written: Mapping[int, Kind]) -> Rule:
    return Rule(written, carries=False)


_RULES: Mapping[str, Rule] = {
    # The time to search for one long text in another is the product of both lengths.
    "contains": _figure({1: "needle"}),
    "instr": _figure({1: "needle"}),
    "locate": _figure({0: "needle"}),
    "position": _figure({0: "needle"}),
    "substring_index": Rule({1: "needle", 2: "number"}),
    "split_part": Rule({1: "needle", 2: "index"}),
    "replace": Rule({1: "needle", 2: "text"}),
    "concat_ws": Rule({0: "text"}),
    "array_join": Rule({1: "text", 2: "text"}),
    # The pattern itself is judged, too.
    "regexp": _figure({1: "pattern"}),
    "regexp_like": _figure({1: "pattern"}),
    "rlike": _figure({1: "pattern"}),
    "regexp_count": _figure({1: "pattern"}),
    "regexp_extract": Rule({1: "pattern", 2: "number"}),
    "regexp_replace": Rule({1: "pattern", 2: "text"}, arguments_max=3),
    "regexp_substr": Rule({1: "pattern"}),
    "split": Rule({1: "pattern", 2: "number"}),
    "repeat": Rule({1: "count"}, is_for_elements=False),
    "space": Rule({0: "count"}, is_for_elements=False),
    "lpad": Rule({1: "count", 2: "text"}, is_for_elements=False),
    "rpad": Rule({1: "count", 2: "text"}, is_for_elements=False),
    "array_repeat": Rule({1: "count"}, is_for_elements=False),
    "sequence": Rule({0: "count", 1: "count", 2: "count"}, is_for_elements=False),
    "element_at": Rule({1: "index"}),
    "slice": Rule({1: "index", 2: "count"}),
    "round": _figure({1: "scale"}),
    "date_format": _figure({1: "format"}),
    "to_timestamp": _figure({1: "format"}),
    "unix_timestamp": _figure({1: "format"}),
    "date_trunc": _figure({0: "text"}),
    "date_part": _figure({0: "text"}),
    "extract": _figure({0: "text"}),
    "get_json_object": Rule({1: "text"}),
    "from_json": Rule({1: "type"}, arguments_max=2),
    "named_struct": Rule(arguments_max=400),
    # Their second argument is a function of an element.
    "transform": Rule(arguments_max=2, is_for_elements=False),
    "filter": Rule(arguments_max=2, is_for_elements=False),
    "exists": Rule(arguments_max=2, is_for_elements=False, carries=False),
    "forall": Rule(arguments_max=2, is_for_elements=False, carries=False),
}

JUDGING = frozenset(_JUDGING.split())
OPERATORS = JUDGING | frozenset(_CARRYING.split())
FUNCTIONS: Mapping[str, Rule] = {
    **dict.fromkeys(_FIGURES.split(), Rule(carries=False)),
    **dict.fromkeys(_TEXTS_AND_LISTS.split(), Rule()),
    **_RULES,
}
# Functions whose result is one of their arguments.
CHOOSING = frozenset({"coalesce", "greatest", "if", "ifnull", "least", "nullif", "nvl", "nvl2"})
# How many bytes these functions make of one byte.
LONGER: Mapping[str, float] = {"base64": 1.4, "hex": 2.0, "to_json": 2.0, "url_encode": 3.0}
