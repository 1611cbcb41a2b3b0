"""Content feeds: readers say what they care about, by words or by meaning; articles arrive, and every reader gets a feed.

    python feeds.py

KEYWORDS asks for all of some words, ANY_KEYWORD for one of them, PHRASE for words in a row. Words have a language, so that `exports` finds
`export` (needs the extra `stems`). SIMILAR compares an article with a text, or its vector with the vector of what a reader liked. All of them combine
with any other condition.
"""

from __future__ import annotations

from collections import defaultdict

from wherecast import Engine, Schema

SCHEMA = Schema.of(
    {
        "title": {"type": "string", "language": "english"},
        "body": {"type": "string", "language": "english"},
        "section": "string",
        "language": "string",
        "words": "integer",
        "tags": "array<string>",
        "meaning": "vector(3)",
    }
)
#: Stands in for a model of embeddings, which would give hundreds of numbers: words of an article by theme.
THEMES = (
    {"bank", "exports", "rates", "rules", "ministry"},
    {"wind", "winds", "windy", "rain", "solar", "power"},
    {"goals", "race", "sailors"},
)


def embed(text: str) -> list[float]:
    """The vector of a text."""
    words = text.lower().replace(".", " ").replace(";", " ").split()
    return [float(sum(word in theme for word in words)) for theme in THEMES]


# --8<-- [start:feeds]
FEEDS = {
    "chips": "KEYWORDS(body, 'chip', 'export')",
    "chips, short": "KEYWORDS(body, 'chip', 'export') AND words < 20",
    "energy": "ANY_KEYWORD(body, 'wind', 'solar', 'grid') AND section <> 'sport'",
    "central banks": "PHRASE(body, 'interest rate') OR KEYWORDS(title, 'central', 'bank')",
    "not about football": "section = 'sport' AND NOT ANY_KEYWORD(title, 'football', 'goal')",
    "tagged climate": "array_contains(tags, 'climate') AND language = 'en'",
    "like a text": "SIMILAR(body, 'export of machines that make chips') >= 0.5",
    "like a vector": f"SIMILAR(meaning, ARRAY{tuple(embed('wind and solar power'))}) >= 0.9 AND section <> 'sport'",
}
# --8<-- [end:feeds]

ARTICLES: list[dict[str, object]] = [
    {
        "title": "New rules for chip makers",
        "body": "The ministry limits exports of chips and of the machines that make them.",
        "section": "economy",
        "language": "en",
        "words": 13,
        "tags": ["trade"],
    },
    {
        "title": "Central bank waits",
        "body": "Interest rates stay where they are, the board says.",
        "section": "economy",
        "language": "en",
        "words": 9,
        "tags": ["money"],
    },
    {
        "title": "A windy night",
        "body": "Winds of the night gave the grid more power than it could take; solar parks were switched off in the morning, "
        "and exporting was no way out either.",
        "section": "climate",
        "language": "en",
        "words": 29,
        "tags": ["climate", "energy"],
    },
    {
        "title": "Three goals in the rain",
        "body": "The wind did not help.",
        "section": "sport",
        "language": "en",
        "words": 5,
        "tags": [],
    },
    {
        "title": "The race begins",
        "body": "Sailors wait for wind.",
        "section": "sport",
        "language": "en",
        "words": 4,
        "tags": ["sailing"],
    },
]


def make_engine() -> Engine:
    """An engine with the feeds as subscriptions."""
    engine = Engine(SCHEMA)
    for name, condition in FEEDS.items():
        engine.subscribe(name, condition)
    return engine


def main() -> dict[str, list[str]]:
    """Match the articles and print each feed."""
    feeds: dict[str, list[str]] = defaultdict(list)
    events = [article | {"meaning": embed(f"{article['title']} {article['body']}")} for article in ARTICLES]
    matches = make_engine().match_batch(events).to_lists()
    for article, names in zip(ARTICLES, matches, strict=True):
        for name in names:
            feeds[str(name)].append(str(article["title"]))
    for name in FEEDS:
        print(f"{name}: {', '.join(feeds[name]) or 'nothing today'}")
    return dict(feeds)


if __name__ == "__main__":
    main()
