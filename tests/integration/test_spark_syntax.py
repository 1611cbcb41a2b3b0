"""CASE, CAST, intervals, lambdas and the other syntax of the language mean what they mean in Spark SQL.

Where Spark's ANSI mode would end the query and a filter is NULL, Spark is asked with `try_cast` and the like: such cases are pairs.
"""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.language.syntax.java_regex import rlike_regex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiling_spark")]

ZONE = "Europe/Berlin"
DAYS = [
    dt.date(2024, 1, 31),
    dt.date(2024, 2, 29),
    None,
    dt.date(1969, 12, 31),
    dt.date(1600, 1, 1),
    dt.date(2024, 3, 31),
]
CLOCKS = [
    text and dt.datetime.fromisoformat(text)
    for text in (
        "2024-03-30 02:30:00",
        "2024-10-27 00:30:00.120",
        "1960-01-31 23:59:59.999999",
        None,
        "2024-10-26 01:30:00",
        "2024-12-31 10:00:00",
        "2024-10-27 01:30:00",
    )
]
VALUES: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "s": (
        "string",
        pa.string(),
        [
            *(
                "5",
                " 5 ",
                "+5",
                "5.5",
                "-7",
                "",
                " ",
                None,
                "x",
                "NaN",
                "inf",
                "-Infinity",
                "1e3",
                "1d",
                "0x1p3",
                "9223372036854775808",
            ),
            *(
                "true",
                "T",
                " no ",
                "0",
                "2024-01-31",
                " 2024-1-5 ",
                "2024-01-05 xyz",
                "2024-02-30",
                "2024",
                "+2024-03-01",
            ),
            *(
                "2024-01-05 10:00",
                "2024-01-05T10:00:00.1234567Z",
                "2024-06-05 10:00:00 Europe/Paris",
                "2024-01-05 10:00:00 PST",
            ),
            *(
                "2024-01-05 10",
                "2024-01-05 10:",
                "2024-01-05 24:00:00",
                "2024-01-05 10:00:00+01:30",
                "12.345",
                "-1.235",
                ".5",
                "5.",
            ),
            *("300", "\t7\n", "1_0", "é", "日本", "A\u0000", "1e400", "123456789012"),
        ],
    ),
    "t": ("string", pa.string(), ["a%b", "axb", "a_b", "IBM", "ibm", None, "", "日本語", "a\\b", "a\nb", "straße"]),
    "d": (
        "double",
        pa.float64(),
        [
            0.0,
            1.5,
            None,
            float("nan"),
            float("inf"),
            -2.9,
            2.5,
            1e10,
            123456789.0,
            0.001,
            9999999.5,
            -0.0,
            1.235,
            5.0,
            -1e-5,
            1e22,
        ],
    ),
    "f": ("real", pa.float32(), [0.5, None, 1.25, 1e10, float("nan"), -3.75, 300.0]),
    "i": ("int", pa.int32(), [0, 1, 5, None, -7, 2**31 - 1, -(2**31), 300, 12]),
    "j": ("tinyint", pa.int8(), [1, 2, None, -3, 127, -128, 5]),
    "l": ("integer", pa.int64(), [0, 5, -7, None, 2**63 - 1, -(2**63), 2**40, 1704099600]),
    "b": ("boolean", pa.bool_(), [True, False, None]),
    "day": ("date", pa.date32(), DAYS),
    "ts": ("timestamp", pa.timestamp("us", "UTC"), CLOCKS),
    "n": ("timestamp_ntz", pa.timestamp("us"), CLOCKS),
    "arr": ("array<int>", pa.list_(pa.int32()), [[1, 2, 3], [], None, [None, 5], [7], [-1, None, 300]]),
    "tags": ("array<string>", pa.list_(pa.string()), [["news", "é"], [], None, ["IBM", None], ["a%b"]]),
}
ROWS = 46 * 3
NUMBERS = ("i", "j", "l", "d", "f")

CASTS = [
    *(f"CAST({c} AS {k}) > 1" for c in NUMBERS for k in ("tinyint", "smallint", "int", "bigint", "float", "double")),
    *(f"CAST({c} AS DECIMAL(10, 2)) > 1.24" for c in (*NUMBERS, "s", "ts", "b")),
    *(f"CAST(s AS {k}) > 1" for k in ("tinyint", "int", "bigint", "float", "double", "decimal(20, 3)")),
    *(f"CAST({c} AS BOOLEAN)" for c in (*NUMBERS, "s", "b")),
    *(f"CAST(b AS {k}) = 1" for k in ("int", "double", "bigint")),
    *(f"CAST({c} AS DATE) > DATE '2024-01-05'" for c in ("s", "day", "ts", "n")),
    *(f"CAST({c} AS TIMESTAMP) >= TIMESTAMP '2024-01-05 10:00:00'" for c in ("s", "day", "ts", "n", "i", "d")),
    *(f"CAST({c} AS TIMESTAMP_NTZ) >= TIMESTAMP_NTZ '2024-01-05 10:00:00'" for c in ("s", "day", "ts", "n")),
    *(f"CAST(ts AS {k}) > 1704099600" for k in ("bigint", "int", "double")),
]
#: Each value as a text: compared with the texts that Spark gives.
TEXTS = [f"CAST({c} AS STRING)" for c in ("i", "j", "l", "b", "d", "f", "day", "ts", "n", "CAST(i AS DECIMAL(20, 4))")]
SAME = [
    "CASE WHEN i > 1 THEN 'a' WHEN i > 0 THEN 'b' ELSE s END = 'b'",
    "CASE i WHEN 1 THEN l WHEN 5.0 THEN 2 END >= 2",
    "CASE WHEN b THEN i > 1 ELSE d > 1 END",
    "CASE WHEN b THEN TRUE WHEN i = 1 THEN FALSE END IS NULL",
    "NOT CASE WHEN i > 1 THEN b ELSE FALSE END",
    "CASE WHEN i = 1 THEN 1 WHEN i = 5 THEN 2.25 ELSE d END > 1.5",
    "if(b, i, j) > 1",
    "if(i > 1, day, ts) > TIMESTAMP '2024-01-05 10:00:00'",
    "coalesce(s, t, 'none') = 'x' OR coalesce(i, j, 0) = 0 OR coalesce(d, i) > 2",
    "nvl(i, 7) = 7 OR ifnull(b, TRUE) OR nvl2(i, j, l) > 1",
    "nullif(i, 5) IS NULL AND nullif(t, 'IBM') IS NULL",
    "coalesce(i, 1.5) > 1.2",
    "s || '-' || i = '5-5' OR t || d = 'IBM1.5' OR length(t || s) > 6 OR i || b || day = 'x'",
    "+i > +1 AND - -d = d",
    "i & 5 = 5 OR j | 2 = 3 OR l ^ i = 2 OR ~i = -6 OR i & l = 5",
    "i << 3 > 20 OR i >> 1 = -4 OR i >>> 28 = 15 OR l >>> 60 = 15 OR j << 7 = 128",
    "1 + j & 3 = 2 | 0 AND i | 1 = 5 ^ 0",
    "i DIV 2 = 2 OR i DIV 2 = -3 OR CAST(i AS DECIMAL(12, 2)) DIV 2.5 = 2",
    "t LIKE 'a!%b' ESCAPE '!' OR t LIKE 'a\\\\b' ESCAPE '/' OR t LIKE 'i%%' ESCAPE '%'",
    "t LIKE 'a!_%' ESCAPE '!'",
    "t NOT LIKE 'a|%b' ESCAPE '|'",
    "t LIKE ANY ('a%', '%M')",
    "t LIKE ALL ('a%', '%b')",
    "t ILIKE SOME ('ib_', 'STRASSE')",
    "t NOT LIKE ANY ('a%', '%b')",
    "t NOT LIKE ALL ('a%', '%b')",
    "t NOT ILIKE ALL ('I%')",
    r"t = r'a\b' OR t RLIKE r'^a\\b$' OR t = R\"a%b\"".replace('\\"', '"'),
    "b IS UNKNOWN OR (i > 1) IS NOT UNKNOWN",
    "i = j IS NULL",
    "i < 5 = b",
    "ts + INTERVAL 1 DAY > TIMESTAMP '2024-03-31 03:00:00'",
    "ts + INTERVAL '24' HOURS = TIMESTAMP '2024-03-31 03:30:00'",
    "ts - INTERVAL 1 MONTH < '2024-01-01' OR ts + INTERVAL '1-1' YEAR TO MONTH > '2025-12-01'",
    "n + INTERVAL '1 02:03:04.5' DAY TO SECOND > TIMESTAMP_NTZ '2024-10-28 04:00:00'",
    "ts + INTERVAL 1 DAY = TIMESTAMP '2024-10-27 02:30:00+01:00' OR ts + INTERVAL 1 DAY = TIMESTAMP '2024-10-27 03:30:00'",
    "day + INTERVAL 1 MONTH = DATE '2024-02-29' OR day - INTERVAL 1 YEAR < DATE '1969-01-01'",
    "day + INTERVAL 1 WEEK > DATE '2024-03-05' OR day + INTERVAL 2 HOURS = TIMESTAMP '2024-01-31 02:00:00'",
    "day + - INTERVAL 2 DAYS > DATE '2024-02-01' OR ts - day > -INTERVAL 1 HOUR",
    "day + 1 = DATE '2024-02-01' OR day - 1 < DATE '1600-01-01' OR day + j > DATE '2024-03-01' OR 1 + day > day",
    "day - DATE '2024-01-01' > INTERVAL 40 DAYS OR day - day = INTERVAL 0 SECONDS",
    "ts - TIMESTAMP '2024-01-01 00:00:00' > INTERVAL '100 12:00' DAY TO MINUTE OR ts - day < INTERVAL -1.5 SECONDS",
    "n - TIMESTAMP_NTZ '2024-10-27 00:30:00' < INTERVAL 1 HOUR 30 MINUTES",
    "exists(arr, x -> x > 2)",
    "exists(arr, x -> x = 5)",
    "exists(tags, x -> x = 'é' OR x LIKE 'I%')",
    "exists(arr, x -> x + j > 5 AND x < l)",
    "exists(arr, x -> x IS NULL)",
    "forall(arr, x -> x > 0)",
    "forall(tags, x -> exists(arr, y -> length(x) > y))",
    "exists(arr, x -> x IN (1, 7, 300)) OR forall(tags, x -> upper(x) = 'IBM')",
]
#: A filter, and how Spark has to be asked so that it does not fail.
PAIRS = [
    ("s = 5", "try_cast(s AS BIGINT) = 5"),
    ("s > 5.25 OR s <= d", "try_cast(s AS DOUBLE) > 5.25 OR try_cast(s AS DOUBLE) <= d"),
    ("s IN (5, 7)", "try_cast(s AS BIGINT) IN (5, 7)"),
    ("s = b", "try_cast(s AS BOOLEAN) = b"),
    ("s = true OR b <=> s", "try_cast(s AS BOOLEAN) = true OR b <=> try_cast(s AS BOOLEAN)"),
    ("s = day OR s > ts", "try_cast(s AS DATE) = day OR try_cast(s AS TIMESTAMP) > ts"),
    ("i = '5' OR d < ' 1.4 ' OR b = 'yes' OR l IN ('5', '-7')", "i = 5 OR d < 1.4D OR b OR l IN (5, -7)"),
    ("i BETWEEN '0' AND '5'", "i BETWEEN 0 AND 5"),
    ("CASE WHEN b THEN s ELSE 1 END > 3", "CASE WHEN b THEN try_cast(s AS BIGINT) ELSE 1 END > 3"),
    (
        "arr[0] = 1 OR arr[1] IS NULL OR tags[0] = 'IBM'",
        "get(arr, 0) = 1 OR get(arr, 1) IS NULL OR get(tags, 0) = 'IBM'",
    ),
    ("arr[i] > 1 OR arr[-1] = 1 OR arr[j - 1] = 1", "get(arr, i) > 1 OR get(arr, -1) = 1 OR get(arr, j - 1) = 1"),
    ("i DIV j = 1 OR l DIV -1 > 0", "if(j = 0, NULL, i DIV j) = 1 OR if(l = -9223372036854775808, NULL, l DIV -1) > 0"),
    *((text, text.replace("CAST(", "try_cast(").replace("(b AS DEC", "(b AS DEC")) for text in CASTS),
]


#: Java's regular expressions beyond the plain ones.
PATTERNS = [
    *("(?i)é", "(?iu)É", "(?iu)k", "(?iu)s", "(?iu)i", "(?iu)[à-þ]", "(?i)[A-C]x", "(?iu)σ", "(?iu)ß", "(?iu)ǆ"),
    *("(?s)a.b", "a.b", "(?is)A.B", "a(?i:b)c", "(?i)a(?-i)b", "(a(?i)b)c", "(?u)é", "(?i)a|B", "(?:(?i)a)b"),
    *(
        r"\p{L}",
        r"\p{Lu}",
        r"\P{L}",
        r"\pN",
        r"\p{IsGreek}",
        r"\p{IsLatin}+$",
        r"\p{Upper}",
        r"\p{Punct}",
        r"[\p{Ll}1]",
        r"[^\p{L}]",
    ),
    *(
        r"\p{Alpha}\p{Digit}",
        r"\p{Space}",
        r"\p{IsL}",
        r"\x41",
        r"\x{1F600}",
        r"\u0041",
        r"\0101",
        r"\cI",
        r"\e",
        r"[\x41-\x43]",
    ),
    *(
        r"b\Z",
        r"^$|b\Z",
        r"\R",
        r"\h",
        r"\H",
        r"\v",
        r"\V",
        r"\Qa.b\E",
        r"^\Qa.\Eb+$",
        r"x{1,2000}$",
        r"^x{1100}$",
        r"^(xx){1001,}$",
    ),
]
SUBJECTS = [
    *(
        "",
        "a",
        "A",
        "é",
        "É",
        "K",
        "ſ",
        "ı",
        "İ",
        "σς",
        "ẞß",
        "ǅ",
        "Bx",
        "bX",
        "a\nb",
        "a\rb",
        "A\u2028B",
        "abc",
        "aBc",
        "aBC",
        "AB",
        "aB",
        "Ab",
    ),
    *(
        "1",
        "٣",
        "α",
        "Ω",
        "a1",
        "a-b",
        "😀",
        "\t",
        "\x1b",
        "b",
        "b\n",
        "b\r\n",
        "\u00a0",
        "\u180e",
        "\x0b",
        "a.b",
        "a.bb",
        "axb",
        "日本",
    ),
    *("x" * 1100, "x" * 2002, "x" * 2003),
]


def columns() -> dict[str, pa.Array]:
    """Columns in which every value occurs, shuffled, so that they meet in many combinations."""
    out = {}
    for name, (_, kind, values) in VALUES.items():
        column = (values * (ROWS // len(values) + 1))[:ROWS]
        random.Random(name).shuffle(column)
        out[name] = pa.array(column, kind)
    return out


@pytest.fixture
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark.createDataFrame(pa.table(columns())).coalesce(1)
    spark.conf.set("spark.sql.session.timeZone", before)


def answers(frame: DataFrame, texts: list[str]) -> list[list[bool]]:
    found = frame.selectExpr(*(f"({text}) IS TRUE AS f{i}" for i, text in enumerate(texts))).toArrow()
    return [found.column(i).to_pylist() for i in range(len(texts))]


def ours(texts: list[str]) -> list[list[bool]]:
    schema = Schema.of({name: kind for name, (kind, _, _) in VALUES.items()}, time_zone=ZONE)
    engine = Engine(schema, matcher="scan")
    refused = engine.subscribe_many(list(enumerate(texts))).quarantined
    assert not refused, [(texts[q.id], q.error) for q in refused]
    matched = [set(ids) for ids in engine.match_batch(pa.table(columns()))]
    return [[i in ids for ids in matched] for i in range(len(texts))]


def test_syntax_means_what_spark_says(frame: DataFrame) -> None:
    """Every form, plain and negated, on NULL, NaN, empty and multi-byte text, and where clocks change."""
    pairs = [*((text, text) for text in SAME), *PAIRS]
    pairs += [(f"NOT ({mine})", f"NOT ({theirs})") for mine, theirs in pairs]
    spark_says = answers(frame, [theirs for _, theirs in pairs])
    wrong = []
    table = columns()
    for (text, _), mine, theirs in zip(pairs, ours([text for text, _ in pairs]), spark_says, strict=True):
        rows = [row for row in range(ROWS) if mine[row] != theirs[row]]
        if rows:
            event = {name: column[rows[0]].as_py() for name, column in table.items() if name in text}
            wrong.append(f"{text}: Spark says {theirs[rows[0]]} for {event} ({len(rows)} rows)")
    assert not wrong, f"{len(wrong)} of {len(pairs)} differ\n" + "\n".join(wrong)


def test_values_are_written_as_spark_writes_them(frame: DataFrame) -> None:
    """A value cast to a text is Spark's text."""
    found = frame.selectExpr(*(f"{text} AS f{i}" for i, text in enumerate(TEXTS))).toArrow()
    texts = [f"{text} = {_quoted(value)}" for i, text in enumerate(TEXTS) for value in _distinct(found.column(i))]
    counts = [
        found.column(i).to_pylist().count(value) for i in range(len(TEXTS)) for value in _distinct(found.column(i))
    ]
    assert dict(zip(texts, map(sum, ours(texts)), strict=True)) == dict(zip(texts, counts, strict=True))


def test_regular_expressions_find_what_java_finds(frame: DataFrame) -> None:
    """Flags, classes, escapes and long repetitions."""
    subjects = frame.sparkSession.createDataFrame(pa.table({"t": pa.array(SUBJECTS)})).coalesce(1)
    found = answers(subjects, [f"t RLIKE {_escaped(pattern)}" for pattern in PATTERNS])
    wrong = [
        f"{pattern} in {text[:20]!r}: Java says {theirs}"
        for pattern, answer in zip(PATTERNS, found, strict=True)
        for text, theirs in zip(SUBJECTS, answer, strict=True)
        if rlike_regex(pattern).is_found(text) != theirs
    ]
    assert not wrong, "\n".join(wrong)


def _escaped(pattern: str) -> str:
    return _quoted(pattern.replace("\\", "\\\\"))


def _distinct(column: pa.ChunkedArray) -> list[str]:
    return sorted(set(column.to_pylist()) - {None})


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
