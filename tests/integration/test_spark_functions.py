"""Every function of the table has the values that Spark SQL gives it."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.ask import ask_spark, ask_spark_by_row, holds

from wherecast.engine.engine import Engine
from wherecast.index.residuals import attribute_values
from wherecast.language.evaluate import evaluate
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.expression import IsNull, Node
from wherecast.language.filters.compile import Compiler
from wherecast.language.functions.refused import REFUSED
from wherecast.language.functions.table import BEYOND_SPARK, FAMILIES, FUNCTIONS
from wherecast.language.nullable import decimal_scale
from wherecast.language.syntax.cutting import SlotTexts
from wherecast.language.syntax.literals import Literals, ProgramScope
from wherecast.language.syntax.skeletons import cut_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiling_spark")]

FIELDS = {
    "s": "string",
    "t": "string",
    "n": "int",
    "k": "bigint",
    "b": "tinyint",
    "x": "double",
    "r": "real",
    "d": "date",
    "ts": "timestamp",
    "w": "timestamp_ntz",
    "h": "boolean",
    "a": "array<string>",
    "ai": "array<bigint>",
    "ax": "array<double>",
    "z": "binary",
    "q": "string",
    "g": "string",
    "m": "map<string,bigint>",
    "md": "map<int,double>",
}
_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "tinyint": pa.int8(),
    "double": pa.float64(),
    "real": pa.float32(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(),
    "array<string>": pa.list_(pa.string()),
    "array<bigint>": pa.list_(pa.int64()),
    "array<double>": pa.list_(pa.float64()),
    "binary": pa.binary(),
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
    "map<int,double>": pa.map_(pa.int32(), pa.float64()),
}
NAN, INF = math.nan, math.inf
_DAY, _HOUR = 86_400_000_000, 3_600_000_000


def _us(*parts: int) -> int:
    return round((dt.datetime(*parts) - dt.datetime(1970, 1, 1)).total_seconds()) * 1_000_000  # type: ignore[arg-type]  # noqa: DTZ001 - wall clocks


def _days(*parts: int) -> int:
    return (dt.date(*parts) - dt.date(1970, 1, 1)).days


#: Values by column, taken in turn: columns of different lengths meet in ever other pairs.
VALUES: dict[str, list[Any]] = {
    "s": ["IBM", "", " a b ", None, "straße", "a.b.c", "😀x😀", "Ångström é", "aaa", "\tx\n", "İI", "foo123bar45", "x"],
    "t": ["B", "", "a", ".", "😀", None, "aa", "é", "I", " ", "b.c"],
    "n": [0, 1, -1, 2, -2, None, 3, 7, 2**31 - 1, -(2**31), 5, 100, 36],
    "k": [0, 1, -1, 10, None, 2**63 - 1, -(2**63), 1_700_000_000, 255, 256, 65, 12_345, -12_355],
    "b": [0, 5, -5, 127, -128, None, 15],
    "x": [0.0, -0.0, 1.5, -1.5, 2.5, 0.1, NAN, INF, -INF, None, 1e300, 123.456, -7.005, 1e-300, 2**53 + 1.0, 0.3, 1e19, 2.0**63, -(2.0**63)],
    "r": [0.0, 1.5, -2.5, None, NAN, 0.1, 3.4e38, -INF, 2.675, 1e10],
    "d": [_days(2024, 1, 31), _days(1970, 1, 1), None, _days(2024, 2, 29), _days(1, 1, 1), _days(9999, 12, 31),
          _days(1969, 12, 31), _days(2020, 12, 31), _days(1600, 3, 1), _days(2021, 1, 3)],
    "ts": [_us(2024, 1, 31, 10, 59, 59) + 999_999, 0, None, -1, _us(2024, 3, 31, 0, 59), _us(2024, 3, 31, 1, 30),
           _us(2024, 10, 27, 0, 30), _us(2024, 10, 27, 1, 30), _us(1, 1, 2), _us(9999, 12, 31), _us(1890, 5, 5, 5, 5, 5),
           _us(2005, 10, 30, 2, 40), _us(2005, 10, 30, 3, 20), _us(2023, 12, 31, 23, 30)],
    "w": [_us(2024, 3, 31, 2, 30), None, _us(2024, 10, 27, 2, 30), 0, -1, _us(2000, 2, 29, 23, 59, 59)],
    "h": [True, False, None],
    "a": [["news", "x"], [], None, ["x", None], [None], ["", "😀", "x"]],
    "ai": [[1, 2, 3], [], None, [None, 5], [3], [-(2**63), 2**63 - 1]],
    "ax": [[0.5, NAN, NAN], [-0.0, 0.0], None, [INF, -INF, 0.0], []],
    "z": [b"", b"ab", None, b"\x00\xff", "é".encode()],
    "q": ["2024-02-29", "2024-01-31 10:20:30.5", None, " 1969-12-31 23:59:59.999 ", "2000-1-1"],
    "g": ["31.01.2024", "1.2.2024", "20240229235959", "2024/02/29 23:59:59.5", "2024-02-29T12:00:00+05:30", "2024-02-29t12:00:00z", "29 feb 2024",
          "1969-12-31 23:59:58", "2024-03-31 02:30:00", "2024-10", "23:59", "991231", "0000", "-0001", "+12024", "12024", "02-29", "02-28", "30.02.2024",
          None, "31.01.2024 ", "001.1.2024", "20240131", "-20240131", "31012024", "20240229235959.12", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00+18:01", "7 o'clock", "07 o'clock", "2024/02/29 23:59:59.1234", "31.01.-2024"],
    "m": [[("IBM", 1), ("x", None)], [], None, [("", 5), ("😀x😀", -(2**63))], [("x", 3)]],
    "md": [[(1, NAN), (-1, -0.0)], None, [(100, 1.5), (7, None)], []],
}  # fmt: skip
ROWS = 32
TABLE = pa.table(
    {
        name: pa.array([VALUES[name][i % len(VALUES[name])] for i in range(ROWS)], _ARROW[kind])
        for name, kind in FIELDS.items()
    }
)

#: Expressions that Spark and Wherecast read alike, by what they need to differ in.
TEXTS = """
lower(s) ; lcase(s) ; upper(s) ; ucase(t) ; length(s) ; char_length(s) ; character_length(s) ; len(s) ; octet_length(s) ; bit_length(s)
startswith(s, t) ; endswith(s, t) ; contains(s, t) ; startswith(s, '') ; trim(s) ; ltrim(s) ; rtrim(s) ; btrim(s) ; btrim(s, t) ; btrim(s, '')
substring(s, n) ; substring(s, n, b) ; substr(s, 2, 1) ; substr(s, -2) ; substring(s, 0, 2) ; substring(s, -5, 3) ; substring(s, n, n)
left(s, n) ; left(s, 2) ; right(s, n) ; right(s, 2) ; split_part(s, t, n) ; split_part(s, '.', 2) ; split_part(s, '.', -1) ; split_part(s, '', 1)
substring_index(s, t, n) ; substring_index(s, '.', 1) ; substring_index(s, 'aa', -1) ; substring_index('aaaa', 'aa', 2) ; substring_index(s, '.', -2)
instr(s, t) ; locate(t, s) ; locate(t, s, n) ; position(t, s) ; locate('a', s, 2) ; luhn_check(s) ; luhn_check('79927398713') ; luhn_check(t) ; find_in_set(t, s) ; find_in_set('b', 'a,b') ; find_in_set('', s)
concat(s, t) ; concat(s, n, '-', d) ; s || k || h ; concat(x, s) ; concat(s) ; concat(s, '-', t, NULL) ; concat_ws(',', s, t) ; concat_ws(t, a, s) ; concat_ws('-') ; concat_ws(NULL, s)
replace(s, t) ; replace(s, t, 'zz') ; replace(s, '', 'zz') ; translate(s, 'ax😀', 'b') ; translate(s, t, s) ; translate(s, 'aab', 'xyz') ; reverse(s)
repeat(s, b) ; repeat(s, 3) ; repeat(t, -1) ; lpad(s, 5) ; lpad(s, b, t) ; lpad(s, 7, '😀-') ; rpad(s, 5) ; rpad(s, b, t) ; rpad(s, 2, 'x') ; lpad(s, -1, 'x') ; space(b)
ascii(s) ; chr(k) ; chr(n) ; char(65) ; md5(s) ; sha1(s) ; sha(t) ; sha2(s, 256) ; sha2(s, 224) ; sha2(s, 0) ; sha2(s, n) ; sha2(s, 512) ; sha2(s, 384) ; crc32(s)
regexp_like(s, '[0-9]+') ; regexp_like(s, 'a$') ; regexp(s, '^$')
regexp_extract(s, '([a-z]+)([0-9]+)') ; regexp_extract(s, '([a-z]+)([0-9]+)', 2) ; regexp_extract(s, '[0-9]+$', 0) ; regexp_extract(s, '(x)|(😀)', 2)
regexp_substr(s, '[a-z]+') ; regexp_substr(s, 'q') ; regexp_substr(s, 'x*') ; regexp_count(s, 'a') ; regexp_count(s, '[a-z]+') ; regexp_extract(s, '(a)', 3) ; regexp_extract(s, '\\\\s+$', 0) ; regexp_replace(s, '[0-9]+', '#') ; regexp_replace(s, '(.)a', '$1$1-') ; regexp_replace(s, '\\\\s+$', '')
initcap(s) ; initcap('ǆa ΑΣ σΣ ß İI') ; initcap('hELLO wORLD-foo') ; trim(BOTH 'x' FROM s) ; trim(LEADING t FROM s) ; trim(TRAILING FROM s) ; trim(BOTH FROM s) ; trim('a' FROM s) ; trim('😀', s) ; ltrim('a', s) ; rtrim(t, s) ; ltrim(t, s)
position('a' IN s) ; position(t IN s) ; substring(s FROM 2 FOR 3) ; substring(s FROM b) ; substr(s FROM 2)
regexp_instr(s, 'x') ; regexp_instr(s, '[0-9]+') ; split(s, '[.]') ; split(s, 'a') ; split(s, ' ') ; get(split(s, 'x'), 1)
regexp_replace(s, 'a|b', '\\\\$') ; regexp_replace(s, '(a)(b)?', '[$2$10]') ; lower(upper(s)) ; length(concat(s, t)) ; substring(trim(s), 1, 1)
"""
MOMENTS = """
year(d) ; year(ts) ; year(w) ; quarter(d) ; quarter(ts) ; month(d) ; month(ts) ; day(d) ; day(ts) ; dayofmonth(w) ; dayofweek(d) ; dayofweek(ts) ; weekday(d) ; weekday(w)
dayofyear(d) ; dayofyear(ts) ; weekofyear(d) ; weekofyear(ts) ; hour(ts) ; hour(d) ; hour(w) ; minute(ts) ; minute(w) ; minute(d) ; second(ts) ; second(w) ; hour('2024-01-31 10:00:00')
monthname(d) ; monthname(ts) ; dayname(d) ; dayname(w) ; to_date(ts) ; to_date(d) ; to_date(w) ; to_date('2024-02-29') ; to_timestamp(d) ; to_timestamp(ts) ; year('2024-02-29')
trunc(d, 'year') ; trunc(d, 'yy') ; trunc(d, 'QUARTER') ; trunc(ts, 'Mon') ; trunc(d, 'mm') ; trunc(d, 'week') ; trunc(d, 'day') ; trunc(w, 'yyyy')
date_trunc('YEAR', ts) ; date_trunc('quarter', ts) ; date_trunc('mon', ts) ; date_trunc('week', ts) ; date_trunc('day', ts) ; date_trunc('DD', d) ; date_trunc('hour', ts)
date_trunc('minute', ts) ; date_trunc('second', ts) ; date_trunc('millisecond', ts) ; date_trunc('microsecond', ts) ; date_trunc('x', ts) ; date_trunc('hour', w)
datediff(d, ts) ; date_diff(ts, w) ; datediff(d, '2024-01-01') ; date_add(d, 7) ; date_add(d, b) ; date_sub(ts, 7) ; date_sub(d, b) ; dateadd(d, 1) ; add_months(d, b) ; add_months(ts, 1) ; add_months(d, -13)
last_day(d) ; last_day(ts) ; next_day(d, 'Mon') ; next_day(ts, 'su') ; next_day(d, 'FRIDAY')
unix_timestamp(ts) ; unix_timestamp(d) ; unix_timestamp(w) ; to_unix_timestamp(ts) ; unix_seconds(ts) ; to_unix_timestamp(w) ; unix_millis(ts) ; unix_micros(ts) ; unix_date(d)
extract(YEAR FROM d) ; extract(DOW FROM ts) ; extract(SECOND FROM ts) ; extract(secs FROM w) ; extract(SECOND FROM d) ; extract(DOW_ISO FROM d) ; extract(YEAROFWEEK FROM d) ; extract(yearofweek FROM ts) ; extract(MINS FROM ts) ; extract(QTR FROM ts) ; extract(WEEK FROM d) ; extract(DOY FROM w)
to_date(q) ; try_to_date(q) ; to_timestamp(q) ; try_to_timestamp(q) ; to_timestamp_ltz(q) ; to_timestamp_ntz(q) ; to_timestamp_ntz(ts) ; to_timestamp_ntz(d) ; year(q) ; hour(q) ; date_add(q, 1) ; datediff(q, d) ; date(q) ; timestamp(q) ; trunc(q, 'year') ; date_trunc('hour', q) ; last_day(q) ; date(ts) ; timestamp(d)
date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSSSSS') ; date_format(ts, "d.M.yy'T'H:m:sXXX") ; date_format(d, 'dd MMM yyyy') ; date_format(w, 'HH') ; date_format(ts, 'ss.SSS') ; date_format(q, 'yyyyMMdd') ; from_unixtime(n) ; from_unixtime(b, 'yyyy HH:mm') ; from_unixtime(1700000000L, 'yyyy-MM')
date_from_unix_date(b) ; timestamp_seconds(n) ; timestamp_micros(k)
"""
#: Those that end a query of Spark for some row: one zone will do.
MOMENT_ERRORS = """
to_date(g, 'dd.MM.yyyy') ; to_date(g, 'd.M.yyyy') ; to_timestamp(g, 'yyyyMMddHHmmss') ; to_timestamp(g, 'yyyy/MM/dd HH:mm:ss.SSS') ; to_timestamp(g, "yyyy-MM-dd'T'HH:mm:ssXXX") ; try_to_timestamp(g, 'dd MMM yyyy')
unix_timestamp(g) ; unix_timestamp(g, 'yyyy-MM') ; to_unix_timestamp(g, 'HH:mm') ; to_date(g, 'yyMMdd') ; to_date(g, 'yyyy') ; to_timestamp(g, 'MM-dd') ; to_timestamp('31/12/2023', 'dd/MM/yyyy') ; try_to_date(g, 'yyyyMMdd') ; to_timestamp(NULL, 'yyyy') ; unix_timestamp(s) ; to_timestamp(g, "yyyy-MM-dd'T'HH:mm:ss'Z'") ; to_date(g, 'ddMMyyyy') ; to_timestamp(g, 'yyyyMMddHHmmss.SSS') ; to_timestamp(g, "HH 'o''clock'")
next_day(d, 'x') ; add_months(d, n) ; make_date(2024, 2, b) ; make_date(n, b, b) ; make_date(2023, 2, 29) ; timestamp_seconds(k) ; timestamp_millis(k)
"""
CONVERSIONS = """
boolean(n) ; tinyint(b) ; smallint(b) ; int(b) ; int('12') ; bigint(n) ; float(n) ; double(n) ; decimal(n) ; string(n) ; string(d) ; string(h) ; binary(s) ; CAST(s AS BINARY) ; binary('é') ; z = CAST('ab' AS BINARY)
hex(s) ; hex(n) ; hex(k) ; hex(b) ; hex(z) ; unhex(s) ; unhex('1A2') ; unhex(hex(z)) ; bin(n) ; bin(k) ; base64(z) ; base64(s) ; encode(s, 'UTF-8') ; encode(s, 'UTF-16BE') ; encode('abc', 'us-ascii') ; decode(z, 'ISO-8859-1') ; decode(binary(s), 'utf-8')
length(z) ; octet_length(z) ; bit_length(z) ; md5(z) ; sha1(z) ; sha2(z, 256) ; crc32(z) ; bit_get(n, 3) ; getbit(k, 63) ; shiftleft(n, 3) ; shiftleft(k, b) ; shiftright(k, 2) ; shiftright(b, 1) ; shiftrightunsigned(n, 1) ; shiftrightunsigned(k, n) ; div(n, 3) ; div(k, 7) ; div(n * 1.5, 2) ; factorial(b) ; factorial(20)
"""
NUMBERS = """
abs(n) ; abs(b) ; abs(k) ; abs(x) ; abs(r) ; abs(n * 1.5) ; negative(n) ; negative(x) ; negative(b) ; sign(x) ; sign(n) ; signum(r) ; signum(k * 1.5)
round(x) ; round(x, 1) ; round(x, 2) ; round(x, -2) ; round(r) ; round(r, 2) ; round(n, -1) ; round(n, 2) ; round(b, -1) ; round(k, -3) ; round(n, -10) ; round(n * 1.25) ; round(n * 1.25, 1) ; round(b * 1.25, 3)
bround(x) ; bround(x, 2) ; bround(r, 1) ; bround(n, -1) ; bround(b * 2.5) ; round(x, 20) ; round(x, -20)
floor(x) ; floor(r) ; floor(n) ; floor(k) ; floor(n * 1.25) ; ceil(x) ; ceil(r) ; ceil(b) ; ceiling(n * 1.25) ; floor(b * 1.25) / 3 ; round(b * 1.25) / 3 ; abs(b * 1.25) / 3
mod(n, b) ; mod(x, 2) ; pmod(n, b) ; pmod(k, n) ; pmod(x, -2.5D) ; pmod(r, r) ; pmod(b, b) ; pmod(-7, 3) ; pmod(n, 0)
try_add(n, 1) ; try_subtract(b, b) ; try_multiply(k, 2) ; try_divide(x, n) ; try_mod(k, b) ; try_add(b, 1.5)
sqrt(x) ; sqrt(n) ; rint(x) ; rint(r) ; positive(n) ; positive(x) ; cbrt(x) ; cbrt(k) ; power(x, n) ; pow(x, 0.5D) ; pow(r, b) ; power(n, b) ; power(x, x) ; exp(x) ; exp(b) ; exp(r) ; ln(x) ; ln(k) ; log(x) ; log(2, x) ; log(x, n) ; log2(x) ; log2(k) ; log10(x) ; log10(k) ; degrees(x) ; radians(x) ; asin(x) ; acos(x) ; atan(x) ; asin(r) ; acos(n) ; atan(k) ; atan2(x, n) ; atan2(n, x) ; atan2(x, x) ; atan2(r, -1.5D) ; sinh(x) ; cosh(x) ; tanh(x) ; sinh(n) ; tanh(r) ; expm1(x) ; expm1(r) ; log1p(x) ; log1p(k)
isnan(x) ; isnan(r) ; isnan(n) ; isnan(NULL) ; nanvl(x, 0) ; nanvl(x, r) ; nanvl(r, r) ; nanvl(x, n) ; bit_count(n) ; bit_count(k) ; bit_count(b)
"""
CHOICES = """
coalesce(n, k) ; coalesce(s, t, 'z') ; coalesce(h, FALSE) ; coalesce(h, TRUE) ; coalesce(n, 1.5) ; coalesce(x, n) ; coalesce(d, ts) ; coalesce(NULL, b, n) ; coalesce(d, '2024-01-01') ; coalesce(h, h)
nvl(s, t) ; ifnull(n, 0) ; nvl(x, 0) ; nvl2(n, k, 0) ; nvl2(s, t, 'none') ; nullif(s, 'IBM') ; nullif(n, 0) ; nullif(x, x) ; nullif(d, d) ; nullif(NULL, 1) ; nullif(k, n) ; nullif(h, TRUE)
if(x > 1, n, k) ; if(h, s, t) ; if(h, d, ts) ; if(NULL, 1, 2) ; if(h, NULL, s) ; if(n > 0, 1.25, n) ; if(h, h, n > 1)
greatest(n, k) ; greatest(x, n) ; greatest(s, t) ; greatest(d, ts) ; greatest(x, r, n) ; greatest(n, 2.5) ; greatest(NULL, n) ; least(n, k, b) ; least(x, r) ; least(s, t, 'b') ; least(n, 2.5) ; least(w, ts) ; greatest(h, FALSE)
equal_null(s, t) ; equal_null(n, k) ; equal_null(x, NULL) ; isnull(s) ; isnotnull(x) ; isnull(a)
array_contains(a, 'x') ; array_contains(a, s) ; array_contains(ai, 3) ; array_contains(ai, n) ; array_contains(ax, 0) ; array_contains(array('IBM', 'x'), s) ; array_contains(array(1, 2, NULL), n)
arrays_overlap(a, array('x', 'y')) ; arrays_overlap(a, a) ; arrays_overlap(array(3L, 5L), ai) ; arrays_overlap(ax, ax) ; arrays_overlap(a, array(s, t))
size(a) ; array_size(ai) ; cardinality(ax) ; element_at(a, 1) ; element_at(ai, -1) ; element_at(a, b) ; try_element_at(a, 2) ; get(a, 0) ; get(ai, b) ; element_at(ax, 1)
array_position(a, 'x') ; array_position(ai, 3) ; array_position(ai, n) ; array_position(ax, 0.0D) ; array_min(ai) ; array_max(ai) ; array_min(ax) ; array_max(ax) ; array_max(a) ; array_min(a)
m['x'] ; m[s] ; element_at(m, 'IBM') ; try_element_at(m, 'zz') ; map_contains_key(m, 'x') ; map_contains_key(m, s) ; map_keys(m) ; map_values(m) ; size(m) ; cardinality(md) ; md[1] ; md[n] ; element_at(md, 100) ; element_at(md, b) ; array_contains(map_keys(m), 'x') ; array_contains(map_values(m), 3) ; exists(map_values(md), v -> v > 0) ; m IS NULL ; array_max(map_values(m))
array_distinct(a) ; array_distinct(ax) ; array_union(ai, ai) ; array_union(a, array('x', 'q')) ; array_intersect(a, array('x', 'news')) ; array_except(a, array('x')) ; array_except(ai, ai) ; array_remove(a, 'x') ; array_remove(ai, 3) ; array_remove(a, s) ; array_remove(ax, 0) ; array_compact(a) ; array_compact(ax) ; slice(a, 1, 2) ; slice(ai, -1, 1) ; slice(ai, 2, 5) ; slice(ai, -2, 1) ; sort_array(ai) ; sort_array(a, FALSE) ; sort_array(ax) ; get(sort_array(a), 0)
array_join(a, ',') ; array_join(a, '-', 'NULL') ; array_join(a, t) ; size(array(1, 2)) ; element_at(array(n, b), 2)
"""
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "+05:30")


def expressions(block: str) -> list[str]:
    return [text for line in block.strip().splitlines() for text in line.split(" ; ")]


def ask_wherecast(text: str, schema: Schema, events: EventBatch) -> list[Any]:
    """The values of an expression as the evaluator of residuals computes them."""
    whole = f"({text}) IS NULL"
    node, _ = Compiler(schema).check(whole)
    item = node.item if isinstance(node, IsNull) else node
    literals = Literals([SlotTexts.of([value]) for value in cut_text(whole)[1]], 1, schema.zone).take([item])
    scope = ProgramScope(literals, np.zeros(ROWS, np.int64), lambda i: attribute_values(events, i), schema.zone)
    values, valid = evaluate(item, scope)
    return [readable(item, v) if ok else None for v, ok in zip(values.tolist(), valid.tolist(), strict=True)]


def type_of(text: str, schema: Schema) -> Type:
    node, _ = Compiler(schema).check(f"({text}) IS NULL")
    return node.item.type if isinstance(node, IsNull) else Type.BOOLEAN


def readable(node: Node, value: Any) -> Any:
    if node.type is Type.BINARY:
        return bytes.fromhex(value)
    return Decimal(value).scaleb(-decimal_scale(node)) if node.type is Type.DECIMAL else value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


#: Functions that Java computes by instructions of the processor, from a version on: their last digit is not that of StrictMath.
LAST_DIGITS = {"tanh": 24, "cbrt": 25}


def is_last_digit(spark: SparkSession, text: str, own: Any, answer: Any) -> bool:
    """Whether values differ only where Spark's own depend on its Java, and by no more than one double from the next."""
    java = int(spark._jvm.System.getProperty("java.specification.version"))
    is_loose = java >= LAST_DIGITS.get(text.partition("(")[0], java + 1)
    return is_loose and own is not None and answer in (math.nextafter(own, -math.inf), math.nextafter(own, math.inf))


def differences(spark: SparkSession, texts: Sequence[str], zone: str = "UTC") -> list[str]:
    schema = Schema.of(FIELDS, time_zone=zone)
    events = EventBatch.read(schema, TABLE)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        theirs = ask_spark_by_row(spark, TABLE, texts)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    found = []
    for text, answers in zip(texts, theirs, strict=True):
        ours = ask_wherecast(text, schema, events)
        for row, (own, answer) in enumerate(zip(ours, answers, strict=True)):
            if not same(own, answer) and not is_last_digit(spark, text, own, answer):
                used = {n: TABLE[n][row] for n in FIELDS if re.search(rf"\b{n}\b", text)}
                found.append(f"{text} in {zone}: {own!r}, Spark {answer!r}; {used}")
                break
    return found


@pytest.mark.parametrize(
    "block",
    [TEXTS, NUMBERS, CHOICES, CONVERSIONS, MOMENT_ERRORS],
    ids=["texts", "numbers", "choices", "conversions", "moments"],
)
def test_functions_have_sparks_values(spark: SparkSession, block: str) -> None:
    """NULL, NaN, empty and multi-byte texts, ends of ranges: each function alone."""
    found = differences(spark, expressions(block))
    assert not found, "\n".join(found)


def test_functions_of_moments_have_sparks_values(spark: SparkSession) -> None:
    """Ends of time, leap days, hours in which clocks change, in several zones."""
    found = [line for zone in ZONES for line in differences(spark, expressions(MOMENTS), zone)]
    assert not found, "\n".join(found)


_END = 2**31
_DATE = "date_from_unix_date(j)"
FAR_DATES = """
last_day({}) ; date_add({}, 1) ; date_add({}, 30) ; date_sub({}, 1) ; date_sub({}, 30) ; add_months({}, 1) ; add_months({}, -1) ; add_months({}, 1000)
next_day({}, 'Mon') ; next_day({}, 'Thu') ; next_day({}, 'Sun') ; trunc({}, 'YEAR') ; trunc({}, 'QUARTER') ; trunc({}, 'MONTH') ; trunc({}, 'WEEK')
{} + INTERVAL 1 DAY ; {} - INTERVAL 1 DAY ; {} + INTERVAL 1 MONTH ; {} - INTERVAL 2 YEAR ; {} + 1 ; {} - 1
"""
FAR_NUMBERS = """
datediff({}, DATE'1969-01-01') ; datediff(DATE'2000-01-01', {}) ; year({}) ; month({}) ; day({}) ; dayofweek({}) ; weekday({}) ; dayofyear({}) ; weekofyear({}) ; quarter({})
"""


def test_dates_at_the_ends_of_32_bits(spark: SparkSession) -> None:
    """Spark adds days without a check, so that they begin again at the other end, but checks dates that it makes of months."""
    days = [end + near for end in (_END - 1, -_END) for near in (0, 1, 10, 40, 400, -1, -10, -40, -400)]
    days = [day for day in days if -_END <= day < _END] + [-1, 0, 19_000]
    texts = [f"unix_date({text.format(_DATE)})" for text in expressions(FAR_DATES)]
    texts += [text.format(_DATE) for text in expressions(FAR_NUMBERS)]
    table = pa.table({"j": pa.array(days, pa.int32())})
    for text, answers in zip(texts, ask_spark_by_row(spark, table, texts), strict=True):
        engine = Engine({"j": "int"})
        for value in set(answers):
            engine.subscribe(str(value), f"({text}) IS NULL" if value is None else f"({text}) = {value}")
        assert engine.match_batch(table).to_list_array().to_pylist() == [[str(value)] for value in answers], text


FORMS = (
    "{0} = {1}",
    "NOT ({0} <= {1})",
    "{0} <> {1} OR n IS NULL",
    "NOT ({0} >= {1} AND h)",
    "({0} < {1}) IS NULL",
    "{0} <=> {1}",
)


def _literal(answers: list[Any], is_text: bool) -> str:
    """One of the values of an expression, as a literal that Spark and Wherecast read alike."""
    known = [v for v in answers if v is not None and (not isinstance(v, float) or math.isfinite(v))]
    value = known[len(known) // 2] if known else 0
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value!r}D"
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'" if is_text else str(value)


def test_filters_with_functions_match_as_in_spark(spark: SparkSession) -> None:
    """Each function compared with a constant, under AND, OR, NOT and IS NULL, by an engine with an index."""
    schema = Schema.of(FIELDS)
    events, filters = EventBatch.read(schema, TABLE), []
    for i, text in enumerate(
        t for block in (TEXTS, MOMENTS, NUMBERS, CONVERSIONS, CHOICES) for t in expressions(block)
    ):
        kind = type_of(text, schema)
        if kind in (Type.STRING, Type.BOOLEAN, Type.DOUBLE, Type.INT, Type.BIGINT, Type.DECIMAL):
            value = _literal(ask_wherecast(text, schema, events), kind is Type.STRING)
            filters.append(FORMS[i % len(FORMS)].format(f"({text})", value))
        else:
            filters.append(f"({text}) IS NULL OR n > 1" if i % 2 else f"NOT (({text}) IS NULL AND n > 1)")
    engine = Engine(schema)
    refused = engine.subscribe_many(list(enumerate(filters))).quarantined
    assert not refused, refused[:3]
    found = [set(ids) for ids in engine.match_batch(TABLE)]
    theirs = ask_spark(spark, TABLE, [holds(text) for text in filters])
    wrong = [
        text
        for i, (text, answers) in enumerate(zip(filters, theirs, strict=True))
        if isinstance(answers, list) and answers != [i in ids for ids in found]
    ]
    assert not wrong, "\n".join(wrong)
    assert sum(isinstance(answers, list) for answers in theirs) > 0.85 * len(filters)


def test_the_tables_are_all_of_sparks_functions(spark: SparkSession) -> None:
    """A built-in function of Spark is in the table or refused with a reason; operators are not functions here."""
    listed = spark._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()  # type: ignore[union-attr]
    theirs = {info.getName() for info in listed}
    refused = {name for group in REFUSED for name in group.names}
    assert not refused & set(FUNCTIONS)
    operators = "and or not in like ilike rlike between when cast".split()  # noqa: SIM905
    named = {name for name in theirs if name[0].isalpha()} - set(operators)
    assert named == refused | set(FUNCTIONS) - BEYOND_SPARK


def test_the_examples_are_spark_sql(spark: SparkSession) -> None:
    """Spark takes every example of the table for a condition."""
    nothing = spark.createDataFrame(
        [],
        "symbol STRING, price DOUBLE, volume BIGINT, halted BOOLEAN, day DATE, time TIMESTAMP, tags ARRAY<STRING>, "
        "sizes ARRAY<BIGINT>, labels MAP<STRING, STRING>, quote STRUCT<bid: DOUBLE, ask: DOUBLE>, `odd name` STRING, `from` STRING",
    )
    for rows in FAMILIES.values():
        nothing.selectExpr(*(f"({row.example}) IS TRUE" for row in rows if row.name not in BEYOND_SPARK))


def test_every_function_is_compared() -> None:
    """Each name of the table stands in some expression above."""
    used = set(re.findall(r"(\w+)\(", TEXTS + MOMENTS + MOMENT_ERRORS + NUMBERS + CONVERSIONS + CHOICES))
    assert set(FUNCTIONS) - used == BEYOND_SPARK
