"""Webhooks reach public addresses only, however the address is written."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from wherecast.broker.delivery.addresses import AddressRules, is_public
from wherecast.broker.delivery.kinds.kind import OutgoingMessage, SendResult
from wherecast.broker.delivery.kinds.webhook import WebhookRoutes, new_secret
from wherecast.broker.delivery.records import RouteSecret, RouteState, SubscriberRoute

PRIVATE = [
    "127.0.0.1",
    "10.0.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "172.16.0.1",
    "100.64.0.1",
    "0.0.0.0",
    "198.18.0.1",
]
MESSAGE = OutgoingMessage("d1", "t", "ann", (("quotes", 1),), 0, "title", "text", b"{}")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def spellings(address: str) -> list[str]:
    """An IPv4 address as hosts of URLs."""
    a, b, c, d = (int(part) for part in address.split("."))
    whole = int(ipaddress.IPv4Address(address))
    tail2, tail3 = (c << 8) + d, (b << 16) + (c << 8) + d
    six = f"{whole >> 16:x}:{whole & 0xFFFF:x}"
    flipped = ~whole & 0xFFFFFFFF
    return [
        address,
        f"{address}.",
        f"{whole}",
        f"{whole:#x}",
        f"0X{whole:X}",
        f"0{whole:o}",
        f"00000{whole:o}",
        f"{a}.{tail3}",
        f"{a}.{b}.{tail2}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"0{a:o}.{b}.{c:#x}.{d}",
        f"{a:#x}.{tail3}",
        f"0{a:o}.{tail3:#x}",
        f"[::ffff:{address}]",
        f"[::ffff:{six}]",
        f"[0:0:0:0:0:ffff:{six}]",
        f"[::{address}]",
        f"[::{six}]",
        f"[::ffff:0:{six}]",
        f"[64:ff9b::{address}]",
        f"[64:ff9b::{six}]",
        f"[64:ff9b:1::{six}]",
        f"[2002:{six}::1]",
        f"[2001:0:808:808::{flipped >> 16:x}:{flipped & 0xFFFF:x}]",
        f"[2001:0:{six}::f7f7:f7f7]",
        f"[2606:4700::5efe:{six}]",
        f"[2606:4700::200:5efe:{six}]",
        "".join(chr(ord(char) + 0xFEE0) if char.isdigit() else char for char in address),
        f"example.com@{address}",
    ]


OTHERS = ["localhost", "LOCALHOST", "localhost.", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[fe80::1]", "[fe80::1%25lo]"]
OTHERS += [
    "[fc00::1]",
    "[fd12:3456::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[100::1]",
    "[3fff::1]",
    "[5f00::1]",
    "[fec0::1]",
]
HOSTS = [host for address in PRIVATE for host in spellings(address)] + OTHERS


class Recorder:
    """Notes where connections go; each is answered with the bytes given."""

    def __init__(self, *answer: bytes) -> None:
        self.answer = answer
        self.connected: list[tuple[str, int]] = []
        self.tls: list = []

    async def __call__(self, address, port, tls, name):
        self.connected.append((address, port))
        self.tls.append((tls and tls.verify_mode, tls and tls.check_hostname, name))
        reader = asyncio.StreamReader()
        for part in self.answer:
            reader.feed_data(part)
        return reader, Writer()


class Writer:
    """Takes everything."""

    def write(self, data):
        pass

    async def drain(self):
        pass

    def close(self):
        pass


def send(target: str, recorder: Recorder, resolve=None, allowed: str = "", times: int = 1):
    """The outcomes of sending to a target as if it had been stored."""

    async def run():
        kind = WebhookRoutes(AddressRules(allowed), 5.0, resolve, recorder)
        route = SubscriberRoute("r1", "webhook", target, RouteState.ACTIVE, None, (RouteSecret(new_secret()),))
        found = [await kind.send(MESSAGE, route, 1_800_000_000_000) for _ in range(times)]
        await kind.close()
        return found

    return asyncio.run(run())


def answers(*lists):
    """A resolver that gives one answer after the other, and counts."""
    left = list(lists)

    async def resolve(host, port):
        resolve.calls += 1
        return left.pop(0)

    resolve.calls = 0
    return resolve


def test_there_are_enough_spellings():
    """More than 200 ways to write an address that is not public, all different."""
    assert len(set(HOSTS)) > 200


@pytest.mark.parametrize("scheme", ["https", pytest.param("http", marks=pytest.mark.slow)])
def test_no_spelling_of_a_private_address_is_connected_to(scheme, monkeypatch):
    """With the system's own resolver, whatever it makes of the host, no connection is made."""
    monkeypatch.setenv(
        "RES_OPTIONS", "timeout:1 attempts:1"
    )  # "127.0.0.1." is looked up, and a name server may be silent

    async def run():
        recorder = Recorder(OK)
        kind = WebhookRoutes(AddressRules(), 5.0, None, recorder)
        for host in HOSTS:
            route = SubscriberRoute("r1", "webhook", f"{scheme}://{host}:8443/x", secrets=(RouteSecret(new_secret()),))
            outcome = await kind.send(MESSAGE, route, 1_800_000_000_000)
            assert outcome.result is SendResult.FAILED, host
            assert (await kind.verify(route.target)).result is SendResult.FAILED, host
        await kind.close()
        return recorder.connected

    assert asyncio.run(run()) == []


def test_names_of_private_addresses_are_refused():
    """A name in DNS is refused if any of its addresses is private."""
    for found in (["10.0.0.1"], ["93.184.215.14", "127.0.0.1"], ["::1", "93.184.215.14"], ["::ffff:192.168.0.1"]):
        recorder = Recorder(OK)
        (outcome,) = send("https://tricky.example/x", recorder, answers(found))
        assert (outcome.result, recorder.connected) == (SendResult.FAILED, [])
        assert "not a public address" in outcome.reason


def test_dns_that_changes_its_answer_is_asked_once_per_connection():
    """The connection goes to the address that was checked; when the name moves to a private one, no more is made."""
    recorder = Recorder(OK.replace(b"Content-Length: 0", b"Content-Length: 0\r\nConnection: close"))
    resolve = answers(["93.184.215.14"], ["127.0.0.1"], ["127.0.0.1"])
    outcomes = send("http://moving.example/x", recorder, resolve, times=2)
    assert [one.result for one in outcomes] == [SendResult.DELIVERED, SendResult.FAILED]
    assert recorder.connected == [("93.184.215.14", 80)]
    assert resolve.calls == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["http://127.0.0.1/", "http://169.254.169.254/latest", "//10.0.0.1/", "/other"])
def test_redirects_are_not_followed(status, place):
    """A redirect is a failed try, and nothing is asked of where it points to."""
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
    recorder, resolve = Recorder(head.encode()), answers(["93.184.215.14"])
    (outcome,) = send("http://redirecting.example/x", recorder, resolve)
    assert (outcome.result, outcome.status) == (SendResult.FAILED, status)
    assert "redirects are not followed" in outcome.reason
    assert len(recorder.connected) == resolve.calls == 1


def test_an_allow_list_lets_networks_in():
    """Networks of the setting are allowed besides public addresses, also as mapped addresses; others are not."""
    rules = AddressRules("10.1.0.0/16, ::1/128")
    for address, allowed in {
        "10.1.2.3": True, "::ffff:10.1.2.3": True, "::1": True, "8.8.8.8": True, "10.2.0.1": False, "127.0.0.1": False,
    }.items():  # fmt: skip
        assert rules.allows(ipaddress.ip_address(address)) is allowed, address
    recorder = Recorder(OK)
    assert (
        send("http://inside.example/x", recorder, answers(["10.1.0.7"]), "10.1.0.0/16")[0].result
        is SendResult.DELIVERED
    )
    assert recorder.connected == [("10.1.0.7", 80)]


def test_large_and_endless_answers_are_cut():
    """An answer of a megabyte is not read to its end, and an endless header is a failure."""
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    recorder = Recorder(large, *[b"x" * 1000] * 1000)
    (outcome,) = send("http://big.example/x", recorder, answers(["93.184.215.14"]))
    assert outcome.result is SendResult.DELIVERED
    recorder = Recorder(b"HTTP/1.1 200 OK\r\n", *[b"X-A: " + b"x" * 1000 + b"\r\n"] * 1000)
    (outcome,) = send("http://heads.example/x", recorder, answers(["93.184.215.14"]))
    assert outcome.result is SendResult.FAILED


def test_tls_verifies_the_name_of_the_url():
    """The connection goes to the address, and TLS asks for the name of the URL with verification on."""
    recorder = Recorder(OK)
    (outcome,) = send("https://named.example/x", recorder, answers(["93.184.215.14"]))
    assert outcome.result is SendResult.DELIVERED
    assert recorder.connected == [("93.184.215.14", 443)]
    assert recorder.tls == [(ssl.CERT_REQUIRED, True, "named.example")]


@examples(300)
@given(st.ip_addresses(v=4))
def test_an_address_is_public_in_all_its_forms_or_in_none(address):
    """NAT64 and 6to4 forms are judged as the address they carry; mapped and compatible forms never pass."""
    whole = int(address)
    six_to_four = ipaddress.IPv6Address((0x2002 << 112) | (whole << 80) | 1)
    nat64 = ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) | whole)
    assert is_public(six_to_four) == is_public(nat64) == is_public(address)
    assert not is_public(ipaddress.IPv6Address(whole))
    assert not is_public(ipaddress.IPv6Address((0xFFFF << 32) | whole))
    assert not is_public(address) or (address.is_global and not address.is_multicast)
