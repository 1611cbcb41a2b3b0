"""The table of functions: what a filter may call. To add a function, add a row to the family it belongs to."""

from __future__ import annotations

from wherecast.language.functions.arrays import ARRAY_FUNCTIONS
from wherecast.language.functions.choices import CHOICE_FUNCTIONS
from wherecast.language.functions.conversions import CONVERSION_FUNCTIONS
from wherecast.language.functions.models import MODEL_FUNCTIONS
from wherecast.language.functions.moments import MOMENT_FUNCTIONS
from wherecast.language.functions.numbers import NUMBER_FUNCTIONS
from wherecast.language.functions.row import Function
from wherecast.language.functions.text import TEXT_FUNCTIONS

#: The rows by family, in the order of the documentation.
FAMILIES: dict[str, tuple[Function, ...]] = {
    "Texts": TEXT_FUNCTIONS,
    "Dates and times": MOMENT_FUNCTIONS,
    "Numbers": NUMBER_FUNCTIONS,
    "Choices": CHOICE_FUNCTIONS,
    "Conversions": CONVERSION_FUNCTIONS,
    "Arrays and maps": ARRAY_FUNCTIONS,
    "Topics and words (not in Spark)": MODEL_FUNCTIONS,
}
#: The rows by name, other names included.
FUNCTIONS: dict[str, Function] = {
    name: row for rows in FAMILIES.values() for row in rows for name in (row.name, *row.aliases)
}
#: The names that Spark does not have.
BEYOND_SPARK = frozenset(row.name for row in MODEL_FUNCTIONS)
#: Among whose arguments the type of a number literal matters.
COMPUTING = frozenset(name for name, row in FUNCTIONS.items() if row.has_numbers)
