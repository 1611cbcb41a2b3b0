"""Quiet hours, backoff, templates, and what the API refuses."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from alembic import command
from alembic.config import Config
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateError
from tests.examples import examples
from tests.unit.broker_app import SPACE, serving

from wherecast.broker.delivery.policy import FOREVER, backoff_ms, held_until_ms, minutes_of
from wherecast.broker.delivery.records import QuietHours, SubscriberRecord
from wherecast.broker.delivery.templates import check_template, render
from wherecast.broker.problems import Problem
from wherecast.broker.store import database, subscribers
from wherecast.broker.store.database import BrokerDatabase

EVERY_DAY = frozenset(range(7))
EVENT = {"event": {"symbol": "IBM", "price": 119.456, "tags": ["a", "b"]}, "subscriptions": ["s1"], "space": "quotes"}


def ms(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-07-01 21:59", None),
        ("2026-07-01 22:00", "2026-07-02 07:00"),
        ("2026-07-02 06:59", "2026-07-02 07:00"),
        ("2026-07-02 07:00", None),
        ("2026-10-24 23:00", "2026-10-25 07:00"),  # the clock goes back in this night
        ("2026-03-28 23:00", "2026-03-29 07:00"),  # and forward in this one
    ],
)
def test_quiet_hours_follow_the_clock_on_the_wall(now, until):
    """Quiet from ten to seven in Berlin, over midnight and over changes of the clock."""
    record = SubscriberRecord("t", "a", "Europe/Berlin", (QuietHours(22 * 60, 7 * 60, EVERY_DAY),))
    found = held_until_ms(record, ms(now, "Europe/Berlin"))
    assert found == (None if until is None else ms(until, "Europe/Berlin"))


def test_quiet_days_and_snooze():
    """Days are those on which quiet hours begin; hours that follow each other are one; the later of two ends counts."""
    weekend = (QuietHours(0, 1_440, frozenset({5, 6})), QuietHours(22 * 60, 6 * 60, frozenset({4, 6})))
    record = SubscriberRecord("t", "a", "UTC", weekend)
    assert held_until_ms(record, ms("2026-07-03 23:00")) == ms("2026-07-06 06:00")  # from Friday to Monday
    assert held_until_ms(record, ms("2026-07-06 06:00")) is None
    assert held_until_ms(record._replace(muted=True), ms("2026-07-06 12:00")) == FOREVER
    later = ms("2026-07-06 13:00")
    assert held_until_ms(record._replace(snoozed_until_ms=later), ms("2026-07-06 12:00")) == later


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, 1439), st.integers(0, 1440), st.sets(st.integers(0, 6), min_size=1)), max_size=3),
    st.integers(0, 400 * 86_400_000),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]),
)
def test_an_end_of_quiet_hours_is_quiet_no_more(quiet, after, zone):
    """Just before the end it is quiet, and at the end it is not, unless it is quiet for two weeks on end."""
    hours = tuple(QuietHours(start, end, frozenset(days)) for start, end, days in quiet)
    record, now = SubscriberRecord("t", "a", zone, hours), 1_767_225_600_000 + after
    until = held_until_ms(record, now)
    if until is not None and until - now < 13 * 86_400_000:
        assert until > now
        assert held_until_ms(record, until) is None
        assert held_until_ms(record, until - 1) == until


def test_backoff_grows_to_a_day():
    """Each wait has jitter within its upper half, and none is longer than a day."""
    waits = [(backoff_ms(n, 0.0), backoff_ms(n, 0.999)) for n in range(40)]
    assert waits[0] == (2_500, 4_997)
    assert all(low <= high <= 86_400_000 for low, high in waits)
    assert waits[-1][1] > 80_000_000


@pytest.mark.parametrize("text", ["24:01", "7:00", "12:60", "ab:cd", "1200", "", "-1:00"])
def test_times_of_the_day(text):
    """What is not HH:MM is refused."""
    with pytest.raises(ValueError, match="HH:MM"):
        minutes_of(text)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ event.symbol }} at {{ event.price | round(2) }}", "IBM at 119.46"),
        ("{{ event['symbol'] | lower }}{% if event.price > 100 %}!{% endif %}", "ibm!"),
        ("{% for tag in event.tags %}{{ loop.index }}{{ tag }} {% endfor %}", "1a 2b "),
        ("{{ event.missing.deep }}{{ event.missing | default('none') }}", "none"),
        ("{{ 3 * 4 + 1 }} {{ subscriptions | length }} {{ space }}", "13 1 quotes"),
    ],
)
def test_templates_write(template, text):
    """Attributes, items, filters, conditions and loops."""
    check_template(template)
    assert render(template, EVENT) == text


BAD = [
    "{{ event.__class__ }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ event.items() }}",
    "{{ 'a' * 1000000000 }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ range(10) }}",
    "{{ lipsum() }}",
    "{% for a in b %}{% for c in d %}x{% endfor %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% include '/etc/passwd' %}",
    "{% set a = 1 %}",
    "{{ 'a' | center(1000000000) }}",
    "{{ 'x' % 3 }}",
    "{{ event",
    "{{ x | unknown }}",
    "x" * 5_000,
]


@pytest.mark.parametrize("template", BAD)
def test_templates_that_reach_out_or_cost_much_are_refused(template):
    """When it is stored, or else when it is used."""
    with pytest.raises((Problem, TemplateError)):  # noqa: PT012 - either of the two
        check_template(template)
        render(template, EVENT)


def test_templates_have_limits():
    """Loops end after some thousand steps, results are cut, and long values are short."""
    many = {"event": {"list": list(range(100_000)), "text": "x" * 1_000_000}}
    assert len(render("{{ event.text }}" * 200, many)) < 20_000
    with pytest.raises(Exception, match="steps"):
        render("{% for a in event.list %}{% if a < 0 %}x{% endif %}{% endfor %}", many)


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("rules")) as found:
        yield found


@pytest.mark.sampled
@pytest.mark.parametrize(
    "body",
    [
        {"time_zone": "Mars/Olympus"},
        {"quiet_hours": [{"from": "22:00", "to": "7"}]},
        {"digest_minutes": 0},
        {"title": "{{"},
        {"name": "bob"},
        {"routes": [{"kind": "pigeon"}]},
        {"routes": [{"kind": "webhook", "target": "http://example.com"}]},
        {"routes": [{"kind": "webhook", "target": "https://user:password@example.com"}]},
        {"routes": [{"kind": "webhook", "target": "ftp://example.com"}]},
        {"routes": [{"kind": "webhook", "target": "https://exämple.com"}]},
        {"routes": [{"kind": "email", "target": "ann@example.com"}]},
        {"routes": [{"kind": "file", "target": "x"}]},
        {"routes": [{"kind": "feed", "target": "x"}]},
        {"routes": [{"kind": "chat", "target": "json://127.0.0.1"}]},
        {"routes": [{"kind": "chat", "target": "dbus://"}]},
        {"routes": [{"kind": "feed", "route": "a"}, {"kind": "feed", "route": "a"}]},
    ],
)
def test_wrong_subscribers_are_refused(call, body):
    """With 422 and a sentence, and nothing is stored."""
    answer = call("PUT", "/v1/subscribers/ann", 422, json=body)
    assert len(answer.json()["detail"]) > 10
    call("GET", "/v1/subscribers/ann", 404)


def test_matches_without_a_record_make_no_deliveries(call):
    """Neither subscribers without a record nor those without routes have deliveries; the position does not begin before them."""
    call("PUT", f"{SPACE}/subscriptions/x", 201, json={"filter": "price > 0", "subscriber": "x"})
    call("POST", f"{SPACE}/publish", 200, json={"price": 1})
    call("PUT", "/v1/subscribers/y", 201, json={"routes": [{"kind": "feed"}]})
    call("PUT", "/v1/subscribers/x", 201, json={})
    call("POST", f"{SPACE}/publish", 200, json={"price": 2})
    call("PUT", "/v1/subscribers/x", 200, json={"routes": [{"kind": "feed"}]})
    call("POST", f"{SPACE}/publish", 200, json={"price": 3})
    for _ in range(2_000):
        found = call("GET", "/v1/deliveries", 200).json()["deliveries"]
        if found:
            break
    body = call("GET", f"/v1/deliveries/{found[-1]['id']}", 200).json()["event_body"]
    assert body["data"]["price"] in (2, 3)  # the second, if routes came before it was looked at
    assert len(found) <= 2


def test_an_older_database_is_migrated(tmp_path):
    """Tables of the first version get those of delivery, and keep what they had."""
    store = BrokerDatabase(f"sqlite:///{tmp_path / 'w.db'}")
    config = Config()
    config.set_main_option("script_location", str(database.Path(database.__file__).parent / "migrations"))
    with store.writing() as c:
        config.attributes["connection"] = c
        command.upgrade(config, "0001")
        c.exec_driver_sql("INSERT INTO tenants VALUES ('t', '{}', 0)")
        names = {row[0] for row in c.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert "deliveries" not in names
    store.migrate()
    with store.writing() as c:
        subscribers.put_record(c, SubscriberRecord("t", "ann"))
        assert subscribers.find_record(c, "t", "ann") == SubscriberRecord("t", "ann")
    store.close()
