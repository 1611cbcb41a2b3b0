"""Records as bytes, bytes as frames, and what is refused on the way; what a peer writes down."""

from __future__ import annotations

import random
import sqlite3
import struct
import sys
import tracemalloc
import types
from collections import Counter
from typing import Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.overlay.admission import Admission
from wherecast.overlay.connection import MAX_ENTRIES, MAX_PART_BYTES, _parts
from wherecast.overlay.entry import Gathering
from wherecast.overlay.frames import MAX_BODY, VERSION, FrameError, Framing, Reason
from wherecast.overlay.messages import (
    Ask,
    Copy,
    Deliver,
    Entry,
    Handover,
    Item,
    Notify,
    Piece,
    Put,
    Query,
    Record,
    Route,
    Span,
    Stored,
    Synced,
)
from wherecast.overlay.peer_state import MAX_NOTICES, PeerState, Subscription
from wherecast.overlay.placement import METADATA, RingPlacement
from wherecast.overlay.positions import Contact
from wherecast.overlay.pubsub import RingNode
from wherecast.overlay.requests import (
    Envelope,
    Founders,
    PeerError,
    Rules,
    Waiting,
    endpoint_of,
    is_address,
    parse_endpoint,
)
from wherecast.overlay.settings import RingSettings
from wherecast.overlay.subscribers import event_of
from wherecast.overlay.wire import MAX_VALUES, WIRE, WireError, count_values
from wherecast.papers.chord.simulate import LinkModel, SimulatedNetwork

SCHEMA = Schema.of(
    {
        "s": "string",
        "a": {"type": "bigint", "min": 0, "max": 999},
        "f": {"type": "double", "min": 0, "max": 10},
        "free": "bigint",
        "t": "timestamp",
        "d": "date",
        "b": "boolean",
        "many": "array<bigint>",
    }
)
PLACEMENT = RingPlacement(SCHEMA, RingSettings(successors=3, copies=2))
SECRET = b"a secret of sixteen or more"
ADDRESS = "127.0.0.1:7001/0123456789abcdef"
RECORDS = list(WIRE._numbers)


def values_of(hint):
    """Values of an annotated type, made without a look at how they are read."""
    if hint in RECORDS:
        return st.builds(hint, *[values_of(h) for h in get_type_hints(hint).values()])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, arguments))
    edges = st.sampled_from([-(2**63) - 1, -(2**63), 2**63, 2**64 - 1, 2**64, 2**160 - 1, -(2**160), 255, 256])
    plain = {
        int: st.integers(-(2**200), 2**200) | st.integers(-200, 200) | edges,
        bool: st.booleans(),
        str: st.text(),
        bytes: st.binary(),
        types.NoneType: st.none(),
    }
    return plain[hint]


any_record = st.sampled_from(RECORDS).flatmap(values_of)


class TestRecords:
    @pytest.mark.sampled
    @pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
    def test_come_back_as_they_were(self, record):
        """Same class, same fields, same types all the way down."""

        @examples(25)
        @given(values_of(record))
        def check(value):
            back = WIRE.decode(WIRE.encode(value))
            assert type(back) is record
            assert repr(back) == repr(value)

        check()

    @given(st.binary(max_size=200))
    def test_noise_is_refused(self, data):
        """Bytes are a record or a WireError, nothing else."""
        try:
            found = WIRE.decode(data)
        except WireError:
            return
        assert type(found) in RECORDS

    @given(any_record, st.data())
    def test_damage_is_refused_or_is_another_record(self, record, data):
        """One byte changed, cut off or added."""
        body = bytearray(WIRE.encode(record))
        place = data.draw(st.integers(0, len(body) - 1))
        damage = data.draw(st.sampled_from(["change", "cut", "add"]))
        if damage == "change":
            body[place] ^= data.draw(st.integers(1, 255))
        elif damage == "cut":
            del body[place:]
        else:
            body += data.draw(st.binary(min_size=1, max_size=4))
        try:
            found = WIRE.decode(bytes(body))
        except WireError:
            return
        assert damage == "change"
        assert type(found) in RECORDS

    @pytest.mark.parametrize(
        "change",
        [
            lambda fields: [*fields, 1],
            lambda fields: fields[:-1],
            lambda fields: [999, *fields[1:]],
            lambda fields: [-1, *fields[1:]],
            lambda fields: [True, *fields[1:]],
            lambda fields: [*fields[:-1], 1],
            lambda fields: [*fields[:-1], None],
            lambda fields: [*fields[:-1], 1.0],
            lambda fields: dict(enumerate(fields)),
            lambda fields: "Ask",
            lambda fields: [],
            lambda fields: [fields],
            lambda fields: [*fields[:-1], msgpack.ExtType(1, b"\0")],
            lambda fields: [*fields[:-1], msgpack.ExtType(1, b"\0" * 9 + b"\1")],
            lambda fields: [*fields[:-1], msgpack.ExtType(7, b"\1" * 9)],
            lambda fields: [*fields[:-1], msgpack.Timestamp(1)],
        ],
    )
    def test_of_another_shape_are_refused(self, change):
        """A field more or less, an unknown class, a field of another type, an integer not in its shortest form."""
        fields = msgpack.unpackb(WIRE.encode(Ask(Contact(1, "x"), True)))
        assert type(WIRE.decode(msgpack.packb(fields))) is Ask
        with pytest.raises(WireError):
            WIRE.decode(msgpack.packb(change(fields)))

    def test_nested_without_end_is_refused(self):
        """Depth costs nobody a stack."""
        for body in (b"\x91" * 100_000, b"\x91" * 400 + b"\x01", b"\x81\x01" * 50_000):
            with pytest.raises(WireError):
                WIRE.decode(body)

    @given(any_record)
    def test_values_are_counted_without_building_them(self, record):
        """As many as a walk over what msgpack builds finds; one less is not enough."""

        def count(value):
            return 1 + sum(map(count, value)) if isinstance(value, list) else 1

        body = WIRE.encode(record)
        found = count(msgpack.unpackb(body))
        assert count_values(body, found) == found
        with pytest.raises(ValueError, match="more than"):
            count_values(body, found - 1)

    @pytest.mark.parametrize(
        "body",
        [
            b"\xdd" + struct.pack(">I", 1 << 22) + b"\x90" * (1 << 22),
            b"\xdd" + struct.pack(">I", 1 << 19) + b"\x80" * (1 << 19),
            (b"\xdd" + struct.pack(">I", 1 << 22)) * 1000 + bytes(1 << 22),
            b"\xdf" + struct.pack(">I", 1 << 19) + b"\x00" * (1 << 20),
        ],
        ids=["empty arrays", "empty maps", "arrays in arrays", "a map"],
    )
    def test_a_body_cannot_become_many_times_its_size(self, body):
        """It is refused before anything is built."""
        tracemalloc.start()
        try:
            with pytest.raises(WireError):
                WIRE.decode(body)
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()

    def test_too_many_values_are_not_written(self):
        """What the other side would refuse does not leave."""
        with pytest.raises(WireError, match="more than"):
            WIRE.encode(Notify(ADDRESS, 1, (1000,) * MAX_VALUES, ()))

    @pytest.mark.parametrize(
        "value", [1.5, {"a": 1}, Ask(Contact(1, "\ud800"), True), Ask(Contact(2**600, ""), True), object()]
    )
    def test_what_the_protocol_does_not_know_is_not_written(self, value):
        """Floats, mappings, halves of characters, integers without end."""
        with pytest.raises(WireError):
            WIRE.encode(value)


def greeted(secret=None, other=...):
    """Two ends that have shaken hands."""
    opener = Framing(secret, is_opener=True)
    accepter = Framing(secret if other is ... else other, is_opener=False)
    assert list(accepter.feed(opener.greeting)) == []
    assert list(opener.feed(accepter.greeting)) == []
    assert list(accepter.feed(opener.proof)) == list(opener.feed(accepter.proof)) == []
    assert opener.is_proven
    assert accepter.is_proven
    return opener, accepter


def fed(receiver, data):
    """The bodies that come out, and the reason why no more do."""
    found = []
    try:
        found.extend(receiver.feed(data))  # what came before an error stays
    except FrameError as error:
        return found, error.reason
    return found, None


class TestFrames:
    @pytest.mark.parametrize("secret", [None, SECRET])
    @given(bodies=st.lists(st.binary(max_size=50), max_size=5), cuts=st.lists(st.integers(1, 40)))
    def test_arrive_however_the_stream_is_cut(self, secret, bodies, cuts):
        """Bodies come out whole and in order, in both directions."""
        for sender, receiver in (ends := greeted(secret), ends[::-1]):
            stream = b"".join(map(sender.seal, bodies))
            found = []
            for cut in [*cuts, len(stream) + 1]:
                found += receiver.feed(stream[:cut])
                stream = stream[cut:]
            assert found == bodies

    @given(body=st.binary(max_size=30), place=st.integers(0), bit=st.integers(0, 7))
    def test_with_a_secret_no_bit_can_be_changed(self, body, place, bit):
        """What comes out is nothing, or an error; never another body."""
        sender, receiver = greeted(SECRET)
        frame = bytearray(sender.seal(body))
        frame[place % len(frame)] ^= 1 << bit
        # None and no bodies: its length says that more is to come.
        found, reason = fed(receiver, bytes(frame))
        assert (found, reason in (None, Reason.UNAUTHENTICATED, Reason.VERSION, Reason.OVERSIZED)) == ([], True)

    @given(st.binary(max_size=100), st.booleans())
    def test_noise_is_an_error_with_a_reason(self, data, is_greeted):
        """Or more is waited for."""
        _, receiver = greeted() if is_greeted else (None, Framing(None, is_opener=False))
        assert fed(receiver, data)[1] in (None, *Reason)

    def test_replays_are_refused(self):
        """Again on the same connection, in another order, on another connection, back to where it came from."""
        for secret in (None, SECRET):
            sender, receiver = greeted(secret)
            first = sender.seal(b"1")
            assert fed(receiver, first + first) == ([b"1"], Reason.REPLAYED)
            sender, receiver = greeted(secret)
            first, second = sender.seal(b"1"), sender.seal(b"2")
            assert fed(receiver, second + first) == ([], Reason.REPLAYED)
        sender, receiver = greeted(SECRET)
        frame = sender.seal(b"1")
        for other in (greeted(SECRET)[1], sender):
            assert fed(other, frame) == ([], Reason.UNAUTHENTICATED)

    def test_secrets_must_be_the_same(self):
        """One side without: refused at the greeting; another secret: at the proof."""
        for mine, theirs in ((SECRET, None), (None, SECRET), (SECRET, SECRET + b"!")):
            with pytest.raises(FrameError) as error:
                greeted(mine, theirs)
            assert error.value.reason is Reason.UNAUTHENTICATED

    @pytest.mark.parametrize("secret", [None, SECRET])
    def test_a_stranger_cannot_announce_a_frame(self, secret):
        """Before the proof, the head of a frame with a body is refused; nothing of the body is waited for."""
        receiver = Framing(secret, is_opener=False)
        assert fed(receiver, Framing(secret, is_opener=True).greeting) == ([], None)
        assert fed(receiver, struct.pack(">BQI", VERSION, 0, 1)) == ([], Reason.OVERSIZED)

    def test_memory_is_given_back(self):
        """A large frame that has been read leaves nothing behind."""
        sender, receiver = greeted(SECRET)
        frame = sender.seal(bytes(MAX_BODY))
        assert fed(receiver, frame[:-1]) == ([], None)
        assert receiver.held_bytes == len(frame) - 1
        assert [len(body) for body in fed(receiver, frame[-1:])[0]] == [MAX_BODY]
        assert (receiver.held_bytes, sys.getsizeof(receiver._buffer) < 1000) == (0, True)

    def test_a_greeting_sent_back_is_refused(self):
        """Or an attacker could have this end answer its own challenge."""
        end = Framing(SECRET, is_opener=True)
        assert fed(end, end.greeting) == ([], Reason.REPLAYED)

    def test_bodies_have_a_limit(self):
        """On the way out too, and nothing is read of one that is announced as too long."""
        sender, _ = greeted()
        with pytest.raises(FrameError) as error:
            sender.seal(bytes(MAX_BODY + 1))
        assert error.value.reason is Reason.OVERSIZED


class WiredNetwork(SimulatedNetwork):
    """A simulated network whose messages go through bytes and admission, as real ones do."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.admission = Admission(self.placement)
        self.kinds = Counter()

    def _new_address(self):
        self._addresses += 1
        return f"127.0.0.1:7001/{self._addresses:016x}"

    def _send(self, source, to, message):
        envelope = WIRE.decode(WIRE.encode(Envelope(to, message)))
        self.admission.check(envelope.message)
        assert envelope == Envelope(to, message)
        self.kinds[type(message).__name__] += 1
        super()._send(source, envelope.to, envelope.message)


class TestAdmission:
    def test_lets_everything_through_that_nodes_say(self):
        """Subscriptions of all kinds, events, joins, leaves and crashes: every message is admitted."""
        net = WiredNetwork(PLACEMENT, 1, LinkModel(loss=0.01))
        nodes = net.found(6)
        rng, compiler = random.Random(1), Compiler(SCHEMA)
        filters = [
            "s = 'x' AND a < 500", "s LIKE 'ab%'", "f > 2.5 OR f < 1", "a <> 7", "free = 3", "b = true AND a >= 10",
            "s > 'b'", "a IN (1, 2, 3)", "f <= 9",
        ]  # fmt: skip
        subscriber, due = net.subscriber(), []
        for number, text in enumerate(filters):
            operation, registration = nodes[number % 6].subscribe(number, compiler.compile(text), subscriber)
            net.settle(nodes[number % 6])
            due.append((nodes[number % 6].ring.me.address, operation))
            assert registration.clauses
        assert net.run_until(due, 60_000)
        net.join([nodes[0].ring.me.address])
        net.run(3_000)
        net.leave(nodes[1].ring.me.address)
        net.crash(nodes[2].ring.me.address)
        published = []
        for _ in range(10):
            event = {
                "s": rng.choice(["x", "abc", "é"]),
                "a": rng.randrange(-5, 1100),
                "f": rng.uniform(-1, 11),
                "free": 3,
            }
            published.append((nodes[0].ring.me.address, nodes[0].publish(event | {"b": True, "d": "2024-01-01"})))
            net.settle(nodes[0])
        assert net.run_until(published, 120_000)
        net.run(20_000)
        assert {"Route", "Took", "Deliver", "Delivered", "Handover", "Sync", "Synced", "Copy", "Copied"} <= set(
            net.kinds
        )
        assert net.subscribers[subscriber].told

    @pytest.mark.parametrize(
        "lie",
        [
            Ask(Contact(2**160, ADDRESS), True),
            Ask(Contact(-1, ADDRESS), True),
            Ask(Contact(1, "127.0.0.1"), True),
            Ask(Contact(1, 7001), True),
            Copy(Contact(1, ADDRESS), 0, (Entry(2 * 8, 1, ()),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(2 * 7, 1, ()),)),  # an array
            Copy(Contact(1, ADDRESS), 0, (Entry(2 * 3, 1, ()),)),  # no order without a domain
            Copy(Contact(1, ADDRESS), 0, (Entry(-2, 1, ()),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(METADATA, -1, ()),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(METADATA, 1, (Piece(0, 0, 1, (Span(None, None),)),)),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(METADATA, 1, (Piece(0, 0, 1, Record("s", "nowhere")),)),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(2, 1, (Piece(0, 0, 1, Record("s", ADDRESS)),)),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(2, 1, (Piece(0, 0, 1, (Span(b"x", None),)),)),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(0, 1, (Piece(0, 0, 1, (Span(1, None),)),)),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(2, 1, (Piece(0, 0, 1, (Span(2**63 + 1, None),)),)),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(2, 1, (Piece(0, 0, -1, None),)),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(2, 1, (Piece(1, 0, 1, None),)),)),
            Copy(Contact(1, ADDRESS), 0, (Entry(2, 1, (Piece(0, 2**160, 1, None),)),)),
            Route(Contact(1, ADDRESS), 1, True, (Item(2**160, 0, Query(ADDRESS, 1, 2, 1)),)),
            Route(Contact(1, ADDRESS), 1, True, (Item(1, -1, Query(ADDRESS, 1, 2, 1)),)),
            Route(Contact(1, ADDRESS), 1, True, (Item(1, 0, Query("", 1, 2, 1)),)),
            Route(Contact(1, ADDRESS), 1, True, (Item(1, 0, Query(ADDRESS, 1, 2, b"x")),)),
            Route(Contact(1, ADDRESS), 1, True, (Item(1, 0, Query(ADDRESS, 1, METADATA, 1)),)),
            Route(Contact(1, ADDRESS), 1, True, (Item(1, 0, Put(ADDRESS, 1, 5, 4, Entry(2, 1, ()))),)),
            Route(Contact(1, ADDRESS), 1, True, (Item(1, 0, Notify(ADDRESS, 1, (1,), ((8, 1),))),)),
            Deliver(ADDRESS, 1, "s", (1,), ((0, 1),)),
            Deliver(ADDRESS, 1, "s", (1,), ((1, 2**63),)),
            Deliver(ADDRESS, 1, "s", (1,), ((7, 1),)),
        ],
    )
    def test_stops_what_cannot_be(self, lie):
        """Places, lists and keys that this ring does not have."""
        with pytest.raises(WireError, match="no peer of this ring"):
            Admission(PLACEMENT).check(lie)

    @given(st.sampled_from([r for r in RECORDS if r.__module__.endswith("messages")]).flatmap(values_of))
    def test_what_it_admits_does_no_harm_to_a_node(self, message):
        """A node that was told anything admissible still does its rounds, and hands its lists on."""
        try:
            Admission(PLACEMENT).check(message)
        except WireError:
            return
        node = RingNode(Contact(5, ADDRESS), PLACEMENT)
        node.found([Contact(5, ADDRESS), Contact(2**159, ADDRESS[:-1] + "0")])
        if not isinstance(message, Deliver) and type(message) in (*node._handlers, *node.ring._handlers):
            node.receive(message)
        node.replication.repair()
        node.ring.stabilise()
        node.lists.entries(0, 0)
        node.lists.digest(3, 5)


class TestAddresses:
    @pytest.mark.parametrize("text", ["127.0.0.1:7001", "host.example:1", "[::1]:7001", ADDRESS])
    def test_good_ones(self, text):
        """With or without an incarnation."""
        assert is_address(text)
        assert parse_endpoint(endpoint_of(text))[1] > 0

    @pytest.mark.parametrize(
        "text", ["", "7001", "host", "host:", "host:x", "a b:1", "h:1/xyz", "h:1/0123456789abcdef0", "h:123456", 7]
    )
    def test_bad_ones(self, text):
        """Whatever they are, they are no addresses."""
        assert not is_address(text)

    @pytest.mark.parametrize("text", ["host", "host:99999", "h:1/0123456789abcdef", ""])
    def test_bad_endpoints_are_refused(self, text):
        """With an example of a good one."""
        with pytest.raises(PeerError, match=r"127\.0\.0\.1:7001"):
            parse_endpoint(text)


def test_rules_come_back_as_they_were():
    """Settings and schema of a ring, as a joiner gets them; nonsense is refused."""
    rules = Rules(RingSettings(successors=3, copies=2, nodes=77), SCHEMA)
    assert Rules.from_json(rules.to_json()) == rules
    for text in ("", "[]", "{}", '{"settings": {"bits": 999}, "schema": {}}', '{"settings": {"new": 1}, "schema": {}}'):
        with pytest.raises(PeerError):
            Rules.from_json(text)


def test_founders_are_named_once_there_are_enough():
    """The gatherer first; who starts again counts once; who comes later is no founder."""
    gathering = Gathering("h:1", Rules(RingSettings(), SCHEMA), 3)
    a, b, b_again, c, d = (f"{e}/{n:016x}" for n, e in enumerate(["h:1", "h:2", "h:2", "h:3", "h:4"]))
    assert gathering.add(b) == Waiting(0, 3)  # not begun
    assert gathering.add(a) == Waiting(1, 3)
    assert gathering.add(b) == Waiting(2, 3)
    assert gathering.add(b_again) == Waiting(2, 3)
    told = gathering.add(c)
    assert isinstance(told, Founders)
    assert set(told.addresses) == {a, b_again, c}
    assert gathering.add(a) == told
    assert gathering.add(d) is None
    assert gathering.add(b) is None


@pytest.mark.parametrize("count", [0, 1, MAX_ENTRIES, MAX_ENTRIES + 1, 2 * MAX_ENTRIES, 3 * MAX_ENTRIES + 7])
def test_zones_are_sent_in_parts(count):
    """Nothing is lost or doubled, no part is too long, and what closes the exchange comes last."""
    entries = tuple(Entry(2, n, ()) for n in range(count))
    sender = Contact(1, ADDRESS)
    for message in (Handover(sender, 1, 2, entries), Synced(sender, 1, 2, False, entries), Copy(sender, 9, entries)):
        *before, last = _parts(message)
        assert [e for part in (*before, last) for e in part.entries] == list(entries)
        assert all(isinstance(part, Copy) and part.token == 0 for part in before)
        assert all(len(part.entries) <= MAX_ENTRIES for part in (*before, last))
        assert type(last) is type(message)
        assert getattr(last, "token", 9) == 9
    assert list(_parts(Stored(1, 2, 3, 4, 5, 6))) == [Stored(1, 2, 3, 4, 5, 6)]


def test_zones_of_long_texts_are_sent_in_more_parts():
    """Few entries, but each with many long spans: all parts can be written, and stay near the size of a part."""
    pieces = (Piece(0, 2**159, 1, tuple(Span(b"x" * 200, b"y" * 200) for _ in range(100))),)
    entries = tuple(Entry(2, number, pieces) for number in range(200))
    parts = list(_parts(Copy(Contact(1, ADDRESS), 9, entries)))
    assert [entry for part in parts for entry in part.entries] == list(entries)
    assert max(len(WIRE.encode(part)) for part in parts) <= MAX_PART_BYTES
    assert [part.token for part in parts] == [0] * (len(parts) - 1) + [9]


def test_events_come_back_as_people_write_them():
    """Keys of every kind of attribute, and what JSON has no number for."""
    event = {"s": "é", "a": -3, "f": 0.1, "t": "2024-05-01T12:00:00+00:00", "d": "1969-12-31", "b": False}
    node = RingNode(Contact(5, ADDRESS), PLACEMENT)
    values = PLACEMENT.read(node._reader.read(event))
    assert event_of(SCHEMA, values) == event
    infinite = PLACEMENT.read(node._reader.read({"f": float("inf")}))
    assert event_of(SCHEMA, infinite) == {"f": "inf"}
    for attribute, key in ((4, 2**62), (5, 2**40), (0, b"\xff")):
        with pytest.raises(ValueError):
            event_of(SCHEMA, ((attribute, key),))


class TestState:
    def test_survives(self, tmp_path):
        """Subscriptions, registrations, notices and the ring are there when it is opened again; 7 is not '7'."""
        state = PeerState(tmp_path)
        node = RingNode(Contact(5, ADDRESS), PLACEMENT)
        node.found([Contact(5, ADDRESS)])
        filters = Compiler(SCHEMA).compile("s = 'x' AND a BETWEEN 3 AND 9 OR f < 3")
        _, registration = node.subscribe(7, filters, "127.0.0.1:7001")
        number = state.add_registration(registration)
        wanted = [Subscription(7, "f < 3", True), Subscription("7", "f < 4", False)]
        for each in wanted:
            state.keep(each)
        numbers = [state.add_notice(7, f"{n}") for n in range(3)]
        state.add_notice("7", "other")
        entries = (Entry(2, 1, (Piece(0, 2**159, 1, (Span(None, 5),)),)), Entry(METADATA, 1, ()))
        state.save_ring(["h:1", "h:2"], entries)
        state.close()
        state = PeerState(tmp_path)
        assert state.registrations() == state.registrations(7) == {number: registration}
        assert state.registrations("7") == {}
        assert sorted(state.subscriptions(), key=repr) == sorted(wanted, key=repr)
        assert (state.find(7), state.find("7"), state.find(8)) == (*wanted, None)
        assert state.notices(7) == [(n, f"{i}") for i, n in enumerate(numbers)]
        state.take_notices(7, numbers[1])
        assert state.notices(7) == [(numbers[2], "2")]
        assert (state.neighbours(), state.entries(60), state.entries(-1)) == (["h:1", "h:2"], entries, ())
        state.forget(7)
        assert (state.find(7), state.notices(7)) == (None, [])
        assert state.registrations(7)  # still in the ring
        state.drop_registration(number)
        assert state.registrations() == {}
        state.close()

    def test_keeps_so_many_notices(self, monkeypatch):
        """Then the oldest go."""
        monkeypatch.setattr("wherecast.overlay.peer_state.MAX_NOTICES", 500)
        assert MAX_NOTICES >= 500
        state = PeerState(None)
        for number in range(3000):
            state.add_notice("s", str(number))
        assert state.notices("s")[0][1] == "2500"
        assert state.notices("s")[-1][1] == "2999"

    def test_of_another_version_is_refused(self, tmp_path):
        """And left as it is."""
        PeerState(tmp_path).close()
        database = sqlite3.connect(tmp_path / "peer.sqlite")
        database.execute("PRAGMA user_version = 9")
        database.close()
        with pytest.raises(PeerError, match="version 9"):
            PeerState(tmp_path)
