"""Every function on the list can be called as people do, and no event makes it throw."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from pipelines.judging.allowed import FUNCTIONS
from pipelines.judging.judge import judge
from pipelines.judging.probes import probes_of
from pipelines.judging.trial import came_of
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration

# Each function, with arguments that depend on the event; members as in `a_pipeline`.
CALLS = """
abs(n) acos(price) array(id,type) array_append(tags,id) array_compact(tags) array_contains(tags,id)
array_join(tags,',') array_join(tags,',','-') array_max(tags) array_min(tags)
array_position(tags,id) array_prepend(tags,id) array_remove(tags,id) array_repeat(id,2)
array_size(tags) arrays_zip(tags,items) ascii(id) asin(price) atan(price) atan2(price,n) base64(id)
between(n,1,2) bigint(id) bigint(price) binary(id) bit_count(n) bit_length(id) boolean(id)
bround(price,2) btrim(id) cardinality(tags) cbrt(price) ceil(price) ceiling(price) char(n)
char_length(id) character_length(id) chr(n) coalesce(id,type) concat(id,type) concat(tags,tags)
concat_ws(',',tags) concat_ws(',',id,type) contains(id,'a') conv(id,16,10) cos(price) crc32(id)
date(id) date_diff(day,date(at)) date_format(at,'yyyy-MM-dd') date_format(at,'E')
date_from_unix_date(int(n)) date_part('hour',at) date_trunc('hour',at) datediff(day,date(at))
day(at) dayofmonth(day) dayofweek(day) dayofyear(day) decimal(id) degrees(price) div(n,n)
double(id) element_at(tags,1) element_at(extra,'a') element_at(tags,-1) endswith(id,type)
equal_null(id,type) exists(tags,t->t='a') exp(price) expm1(price) extract(hour FROM at)
extract(year FROM day) filter(tags,t->length(t)>1) find_in_set(id,type) flatten(array(tags,tags))
float(id) floor(price) forall(tags,t->t>'a') from_json(id,'a INT') from_json(id,'ARRAY<STRING>')
get(tags,int(n)) get_json_object(id,'$.a') greatest(id,type) hash(id,n) hex(id) hex(n) hour(at)
hypot(price,n) if(ok,id,type) ifnull(id,type) initcap(id) instr(id,'a') int(id) int(price)
isnan(price) isnotnull(id) isnull(id) json_array_length(id) json_object_keys(id) last_day(day)
lcase(id) least(id,type) left(id,3) left(id,int(n)) len(id) length(id) ln(price) locate('a',id)
locate('a',id,int(n)) log(price) log(2,price) log10(price) log1p(price) log2(price) lower(id)
lpad(id,5,'x') ltrim(id) luhn_check(id) map_contains_key(extra,id) map_entries(extra)
map_keys(extra) map_values(extra) mask(id) md5(id) minute(at) mod(n,n) month(day)
months_between(at,day) named_struct('a',id) nanvl(price,price) negative(n) nullif(id,type)
nvl(id,type) nvl2(id,id,type) octet_length(id) overlay(id,type,int(n))
overlay(id,type,int(n),int(n)) pmod(n,n) position('a',id) positive(n) pow(price,n)
power(price,price) quarter(day) radians(price) regexp(left(id,10),'a+')
regexp_count(left(id,10),'a+') regexp_extract(left(id,10),'(a+)',1) regexp_like(id,'ab')
regexp_replace(left(id,10),'a+','b') regexp_replace(id,',',';') regexp_substr(left(id,10),'a+')
repeat(id,3) replace(id,'a','b') replace(id,'a') reverse(id) reverse(tags) right(id,3)
right(id,int(n)) rint(price) rlike(left(id,10),'^a') round(price,2) round(price,-2) round(n)
rpad(id,5,'x') rtrim(id) second(at) sequence(1,5) sequence(5,1,-2) sha(id) sha1(id) sha2(id,256)
sha2(id,int(n)) shiftleft(n,int(n)) shiftright(n,int(n)) shiftrightunsigned(n,int(n)) sign(price)
signum(price) sin(price) size(tags) size(extra) slice(tags,1,2) slice(tags,-2,2) smallint(n)
sort_array(tags) sort_array(tags,false) soundex(id) space(3) split(id,',') split(id,',',2)
split(left(id,10),'[,;]+') split_part(id,',',1) split_part(id,',',-1) sqrt(price)
startswith(id,type) string(n) string(price) string(at) struct(id,n) substr(id,int(n))
substr(id,int(n),int(n)) substring(id,2,3) substring(id,int(n),int(n)) substring_index(id,',',1)
substring_index(id,',',-1) tan(price) timestamp(id) tinyint(n) to_date(id) to_date(at) to_json(who)
to_json(items) to_timestamp(id) to_timestamp(id,'yyyy-MM-dd')
to_timestamp(id,'dd/MMM/yyyy:HH:mm:ss') transform(tags,t->upper(t)) transform(items,i->i.sku)
translate(id,'abc',type) trim(id) try_add(n,n) try_divide(n,n) try_multiply(n,n) try_subtract(n,n)
try_to_timestamp(id) try_url_decode(id) typeof(id) ucase(id) unhex(id) unix_date(day)
unix_micros(at) unix_millis(at) unix_seconds(at) unix_timestamp(at) unix_timestamp(id,'yyyy-MM-dd')
upper(id) url_encode(id) weekday(day) weekofyear(day) xxhash64(id,n) year(at)
"""
OPERATORS = [
    *("n + n", "n - n", "n * n", "n / n", "n % n", "n DIV n", "-n", "price / n", "price % n", "+n"),
    *("n & n", "n | n", "n ^ n", "~n", "id || type", "n = 1 AND ok OR NOT ok", "id <=> type"),
    *("id IN ('a', type)", "n BETWEEN 1 AND 2", "id IS NULL", "id IS NOT NULL", "ok IS TRUE"),
    *("id LIKE '%a'", "id LIKE 'a%b'", "id NOT LIKE '%a_b%'", "left(id, 9) RLIKE 'a|b'"),
    *(
        "tags[0]",
        "tags[int(n)]",
        "items[0].sku",
        "extra['a']",
        "extra[id]",
        "who.name",
        "items.sku",
    ),
    *("CAST(id AS DECIMAL(38, 10))", "CAST(price AS DECIMAL(10, 2))", "CAST(price AS INT)"),
    *("TRY_CAST(id AS INT)", "id::bigint", "CAST(id AS BINARY)"),
    *("CASE WHEN n > 1 THEN id WHEN ok THEN type ELSE 'x' END", "CASE n WHEN 1 THEN id END"),
    *("at > TIMESTAMP '2026-01-01 00:00:00'", "day = DATE '2026-01-01'", "trim(BOTH 'x' FROM id)"),
    *("substring(id FROM 2 FOR 3)", "position('a' IN id)", "overlay(id PLACING 'b' FROM 2)"),
    *("price * 1.19", "n * 1e3", "price > 1.5D", "true", "NULL = id", "CAST(NULL AS STRING)"),
    *("at < hifi.event_time", "hifi.text", "left(hifi.key, 5)", "`id`", "/* why */ id -- so"),
]


def calls() -> list[str]:
    """Return each call by itself; blanks occur within brackets only."""
    found, depth, start, text = [], 0, 0, " ".join(CALLS.split())
    for at, char in enumerate(text + " "):
        depth += (char == "(") - (char == ")")
        if char == " " and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return found


def test_every_function_is_tried() -> None:
    assert {call.partition("(")[0] for call in calls()} == FUNCTIONS.keys()


@pytest.mark.parametrize("first", range(0, len(calls()) + len(OPERATORS), 20))
def test_what_may_be_used_can_be_and_throws_on_no_event(
    locked_spark: SparkSession, first: int
) -> None:
    some = [*calls(), *OPERATORS][first : first + 20]
    # In steps of their own, as the output of an event in one step is bounded.
    for part in (some[:10], some[10:]):
        if part:
            columns = {f"c{nth}": text for nth, text in enumerate(part)}
            assert judge(locked_spark, a_pipeline({"select": columns})) is None, part


def test_events_are_tried_that_people_do_not_think_of(locked_spark: SparkSession) -> None:
    pipeline = a_pipeline({"where": "left(id, 900) RLIKE 'x+y' AND from_json(id, 'a INT').a > 0"})
    probes = probes_of(pipeline, partition=0)
    values = b"\n".join(probe.value for probe in probes)
    for odd in (b"1e100000000", b"x" * 1024, b"{},{},{}", b"[[[["):
        assert odd in values
    came = came_of(locked_spark, replace(pipeline, steps=()), probes)
    outcomes = [row.outcome for row in came]
    # Two are not events; all others are read, and therefore take every step.
    assert outcomes == ["passed"] * (len(outcomes) - 2) + ["dead"] * 2
    assert len(outcomes) > 8
