"""The console in a real browser: its story on desktop and phone, what axe-core says, and that nothing scrolls sideways."""

from __future__ import annotations

import re

import pytest
from tests.servers.chromium import running_chromium
from tests.servers.webhooks import receiving_webhooks
from tests.servers.wherecast_broker import running_wherecast

from wherecast import Client

pytestmark = pytest.mark.slow

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
VIEWS = ("feed", "subscriptions", "publish", "subscribers", "deliveries", "load", "spaces", "access")
SCHEMA = {"symbol": "string", "price": "double"}
#: A text that would be a tag, if anybody made markup of it.
NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser():
    with running_chromium() as found:
        yield found


@pytest.fixture(scope="module")
def receiver():
    with receiving_webhooks() as found:
        yield found


@pytest.fixture(scope="module")
def broker(browser, tmp_path_factory):
    settings = ("webhook_allow=127.0.0.0/8", "delivery_ms=1000")
    with running_wherecast(tmp_path_factory.mktemp("console"), settings=settings) as found:
        yield found


@pytest.fixture
def open_page(browser, broker):
    """A page of a new visitor. Errors of its scripts, refusals by the policy and dialogs fail the test."""
    contexts, wrong = [], []

    def open_it(size, scheme="light"):
        context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=size is PHONE)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("console", lambda m: wrong.append(m.text) if "Content Security Policy" in m.text else None)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert not wrong


def sign_in(page, broker, token=None):
    page.goto(f"{broker.url}/console")
    page.get_by_label("Token").fill(token or broker.token)
    page.get_by_role("button", name="Sign in").click()
    page.locator("nav").wait_for(state="attached")  # a phone hides it


def go(page, name):
    """Choose a view in the menu, which a phone hides behind a button."""
    opener = page.get_by_role("button", name="Menu")
    if opener.is_visible():
        opener.click()
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_role("heading", name=name, level=1).wait_for()


def sideways(page):
    """By how many pixels the page is wider than the window."""
    return max(0, page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def ask(broker, method, path, body=None):
    import httpx

    headers = {"Authorization": f"Bearer {broker.token}"}
    answer = httpx.request(method, f"{broker.url}/v1/{path}", headers=headers, json=body, timeout=30)
    answer.raise_for_status()
    return answer.json()


def new_tenant(broker, tenant):
    """The token of an admin of a tenant without anything."""
    ask(broker, "POST", "tenants", {"tenant": tenant})
    return ask(broker, "POST", f"tenants/{tenant}/tokens", {"name": "admin", "scopes": ["admin"]})["secret"]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_whole_story(open_page, broker, receiver, size):
    """From an empty tenant: a space, a filter with a mistake and its caret, corrected; a publish and its match.

    Then its webhook fails, the delivery becomes a dead letter, and a replay delivers it.
    """
    page = open_page(size)
    sign_in(page, broker, new_tenant(broker, f"story-{size['width']}"))
    create_a_space(page)
    register_a_filter(page)
    add_a_subscriber(page, receiver, f"/{size['width']}")
    receiver.status = lambda path, count: 503
    publish_an_event(page)
    see_the_match(page)
    see_the_webhook_fail(page)
    receiver.status = lambda path, count: 204
    replay_the_dead_letter(page, receiver)
    change_and_look_back(page)
    assert sideways(page) == 0
    if size is PHONE:
        page.get_by_role("button", name="Menu").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in to Wherecast").wait_for()


def create_a_space(page):
    page.get_by_role("heading", name="Create your first space").wait_for()
    page.get_by_role("button", name="Create a space").click()
    page.get_by_role("button", name="Stock quotes").click()
    page.get_by_role("button", name="Create the space").click()
    page.get_by_role("heading", name="Register the first filter").wait_for()


def register_a_filter(page):
    page.get_by_role("button", name="New subscription").first.click()
    filter = page.get_by_label("Filter")
    filter.fill("symbol = 'IBM' AND prise < 120")
    caret = page.locator(".caret")
    caret.wait_for()
    text, mark = caret.inner_text().split("\n")[:2]
    assert text[mark.index("^") :].startswith("prise")
    assert "did you mean" in page.locator("#verdict").inner_text()
    assert filter.get_attribute("aria-invalid") == "true"
    page.get_by_role("button", name="Register").click()  # refused by the broker, with the same caret
    caret.wait_for()

    filter.fill("price > 200 AND price < 100")
    page.locator(".findings").wait_for()
    assert "never" in page.locator(".findings").inner_text()

    filter.fill("symbol = 'IBM' AND price < 120")
    page.get_by_text("The filter is valid: 1 clause.").wait_for()
    assert page.locator(".findings").count() == 0
    page.get_by_label("Id", exact=True).fill("cheap-ibm")
    page.get_by_label("Subscriber").fill("ann")
    page.get_by_role("button", name="Register").click()
    page.get_by_text("cheap-ibm is live from version 1 on").wait_for()


def add_a_subscriber(page, receiver, path):
    go(page, "Subscribers")
    page.get_by_role("button", name="New subscriber").first.click()
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Where to").fill(receiver.url + path)
    page.get_by_role("button", name="Save").click()
    page.get_by_text("for checking signatures. It is shown only now.").wait_for()
    receiver.secrets[path] = page.locator(".secret").inner_text()  # the receiver checks signatures with it
    page.get_by_text("unverified").wait_for()
    page.get_by_role("button", name="Verify route r1").click()
    page.locator(".badge", has_text="active").wait_for()
    page.get_by_role("button", name="Test ann").click()
    page.get_by_text(re.compile(r"Delivered by r1 in \d+ ms")).wait_for()
    page.get_by_role("button", name="Mute ann").click()
    page.locator(".badge", has_text="muted").wait_for()
    page.get_by_role("button", name="Unmute ann").click()
    page.locator(".badge", has_text="muted").wait_for(state="detached")


def publish_an_event(page):
    go(page, "Publish")
    event = page.get_by_label("JSON")
    event.fill('{"symbol": "IBM", "price": 130}')
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("0 filters match").wait_for()
    failed = page.locator(".predicates .fails")
    assert failed.count() == 1
    assert "price < 120" in failed.inner_text()
    assert "130" in failed.inner_text()
    event.fill('{"symbol": "IBM", "price": ')
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("This is not JSON").wait_for()
    event.fill('{"symbol": "IBM", "price": 119.5}')
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("On disk at position 0, matched by 1 subscriptions.").wait_for()


def see_the_match(page):
    go(page, "Live feed")
    row = page.locator(".event")
    row.wait_for()
    assert "119.5" in row.inner_text()
    assert row.locator(".tag").inner_text() == "cheap-ibm"


def see_the_webhook_fail(page):
    go(page, "Deliveries")
    page.locator(".row.dead").wait_for()
    assert "503" in page.locator(".row.dead .error").inner_text()
    page.get_by_role("button", name="Attempts of delivery").click()
    attempt = page.get_by_role("table").get_by_role("row").last
    attempt.wait_for()
    assert {"r1", "503"} <= set(attempt.inner_text().split())


def replay_the_dead_letter(page, receiver):
    before = len(receiver.events)
    page.get_by_role("button", name="Replay delivery").click()
    page.locator(".row.delivered").wait_for()
    assert len(receiver.events) == before + 1
    assert receiver.events[-1]["data"]["event"]["data"] == {"symbol": "IBM", "price": 119.5}
    assert receiver.unsigned == 0
    page.get_by_label("State").select_option("dead")
    page.get_by_role("heading", name="No dead letters").wait_for()


def change_and_look_back(page):
    go(page, "Subscriptions")
    page.get_by_role("button", name="Pause cheap-ibm").click()
    page.locator(".badge", has_text="paused").wait_for()
    page.get_by_role("button", name="Resume cheap-ibm").click()
    page.locator(".badge", has_text="active").wait_for()
    page.get_by_role("button", name="History of cheap-ibm").click()
    history = page.get_by_role("list", name="History").get_by_role("listitem")
    history.first.wait_for()
    assert [re.search("created|paused|resumed", text)[0] for text in history.all_inner_texts()] == [
        "resumed",
        "paused",
        "created",
    ]
    page.get_by_role("button", name="Delete cheap-ibm").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_role("heading", name="Register the first filter").wait_for()


@pytest.fixture(scope="module")
def full(broker, receiver):
    """A tenant in which every view has something to show, also texts that look like markup."""
    with Client(broker.url, broker.token) as client:
        client.create_space("quotes", SCHEMA)
        for number in range(4):
            client.subscribe("quotes", f"price > {number}", id=f"s{number}", subscriber="ann", labels={"team": "desk"})
        client.subscribe("quotes", f"symbol = '{NASTY}'", id=NASTY, subscriber=NASTY, labels={NASTY: NASTY})
        client.subscribe("quotes", "symbol IN ('" + "W" * 120 + "')", id="long" * 40)
        routes = [{"kind": "webhook", "target": f"{receiver.url}/ann"}]
        made = ask(broker, "PUT", "subscribers/ann", {"routes": routes})
        receiver.secrets["/ann"] = made["routes"][0]["secret"]
        ask(broker, "POST", "subscribers/ann/routes/r1/verify")
        quiet = [{"from": "22:00", "to": "07:00"}]
        ask(broker, "PUT", "subscribers/bob", {"routes": [{"kind": "feed"}], "muted": True, "quiet_hours": quiet})
        client.publish("quotes", [{"symbol": NASTY, "price": 2.5}, {"symbol": "W" * 300, "price": 1e300}])
    return broker


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop-light", "phone-dark"])
def test_every_view_is_accessible_and_fits(open_page, full, size, scheme):
    """axe-core finds nothing serious in any view, light and dark; nothing is wider than the window; texts stay texts."""
    from axe_playwright_python.sync_playwright import Axe

    page, axe = open_page(size, scheme), Axe()
    found = {}

    def look(name):
        serious = [v for v in axe.run(page).response["violations"] if v["impact"] in ("serious", "critical")]
        found.update({(name, v["id"]): [node["target"] for node in v["nodes"]][:3] for v in serious})
        if sideways(page):
            found[name, "sideways"] = sideways(page)

    page.goto(f"{full.url}/console")
    page.get_by_label("Token").wait_for()
    look("signin")
    sign_in(page, full)
    for view in VIEWS:
        page.goto(f"{full.url}/console#/quotes/{view}")
        page.locator(f'nav [aria-current][href$="/{view}"]').wait_for(state="attached")
        page.locator("main h1").wait_for()
        if view == "publish":
            page.get_by_label("JSON").fill('{"symbol": "' + NASTY + '", "price": 2}')
            page.get_by_role("button", name="Explain").click()
            page.locator(".verdicts").wait_for()
        elif view == "subscriptions":
            page.get_by_role("button", name="New subscription").click()
            page.get_by_label("Filter").fill("prise < 1")
            page.locator(".caret").wait_for()
        elif view == "subscribers":
            page.get_by_role("button", name="Edit ann").click()
        elif view == "deliveries":
            page.get_by_role("button", name="Attempts of delivery").first.click()
            page.get_by_role("table").wait_for()
        elif view == "feed":
            page.locator(".event").first.wait_for()
        elif view == "load":
            page.locator(".chart .line").first.wait_for(state="attached")
        elif view == "access":
            page.locator(".row").first.wait_for()
        look(view)
    assert found == {}
    assert page.locator("img[src=x]").count() == 0


def test_keyboard_and_theme(open_page, full):
    """Tab reaches the content at once, a view's heading has the focus after a change, and the switch changes the colours."""
    page = open_page(DESKTOP)
    sign_in(page, full)
    page.locator(".events").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
    first = page.locator("a[href], button, input, select").first
    first.focus()
    assert first.inner_text() == "To the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    for _ in range(2):
        page.locator("#theme").press("Enter")
    assert page.evaluate(background) != light
    page.reload()
    assert page.evaluate(background) != light


def test_a_reader_sees_no_button_that_fails(open_page, full):
    """A token with the scope read shows everything but offers no change."""
    made = ask(full, "POST", "tokens", {"name": "reader", "scopes": ["read"]})
    page = open_page(DESKTOP)
    page.goto(f"{full.url}/console#once={made['secret']}")
    page.get_by_role("navigation").wait_for()
    assert made["secret"] not in page.url
    names = page.get_by_role("link").all_inner_texts()
    assert "Tokens and quotas" not in names
    go(page, "Subscriptions")
    page.get_by_role("button", name="History of s0").wait_for()
    for word in ("New subscription", "Pause s0", "Edit s0", "Delete s0"):
        assert page.get_by_role("button", name=word).count() == 0
    go(page, "Publish")
    assert page.get_by_role("button", name="Publish").count() == 0
    page.get_by_role("button", name="Explain").click()
    page.locator(".verdicts").wait_for()
