"""One node of the ring, without I/O: join, leave, stabilise, rectify, fix fingers, notice failures.

Two rules
---------
1. Messages and timers come in through `receive` and `fire`; effects (messages to send, timers to start) come out as what
   these return. There is no socket, no clock and no random number in here.
2. A pointer changes only to a node that has just been heard from, and only by one of the five rows of the table below.

Theory of operation
-------------------
Chord as published loses nodes, or splits into two rings, when joins and failures overlap. This is the corrected
protocol (Zave, "Reasoning about identifier spaces: how to make Chord correct", 2017). A node's *extended list* is
itself followed by its successors. A member is a *principal* if no member's extended list skips it: no two neighbours
in the list have it between them. Two invariants carry the proof, and the tests check them in every reachable state of
small rings:

- **one live successor**: the successor list of every member holds a live member;
- **sufficient principals**: there are at least r + 1 principals, r being the length of successor lists.

From them follow: there is exactly one ring, it is in identifier order, and every member reaches it. What they need:

- the ring starts with r + 1 members that know each other (`found`);
- failures leave every member a live successor, and r + 1 principals;
- a node that crashed does not come back: it joins again under a new identifier;
- a live neighbour is not taken for dead. Outside a model this holds only in the long run: a node that was dropped
  by mistake goes on notifying, and is taken in again.

| event | condition | change |
|---|---|---|
| join: `State` of the successor found | no live node known nearer | successors = it and its whole list; now a member |
| stabilise: `State` of the first successor | always | successors = it and its whole list |
| stabilise: `State` of that node's predecessor | it lies between me and my first successor | successors = it and its whole list |
| stabilise: `misses` questions unanswered | always | the dead node leaves all tables; ask the next successor |
| rectify: `Ask` with `notify` | no predecessor, or the sender is nearer | predecessor = the sender |

A predecessor that has been silent for too long is asked (`Ping`) and, if silent still, forgotten: whoever takes itself
for the predecessor says so within one round. No row needs request numbers: at most one question is open, and only
the node it was put to can answer it.

Fingers are hints for look-ups and carry no proof. The finger for me + 2^e is looked up iteratively, one exponent per
round, from the nearest finger that is known; a finger that does not answer is dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from typing import Any

from wherecast.overlay.messages import (
    Ask,
    Effect,
    Found,
    Leaving,
    Message,
    Nearer,
    Ping,
    Pong,
    Send,
    Start,
    State,
    Step,
    Tick,
)
from wherecast.overlay.positions import Address, Contact, between, within
from wherecast.overlay.settings import RingSettings

#: Iterative look-ups of fingers carry their exponent as request, joining has a number of its own, and the look-ups of
#: others are numbered from here on.
JOINING = -1
SEARCHING = 1 << 16
#: A look-up that has come so far is in a ring that is changing: it is given up, and tried again.
MAX_HOPS = 128


class Ring:
    """The maintenance state of one node."""

    __slots__ = (
        "_asked_finger",
        "_awaited",
        "_bootstraps",
        "_exponent",
        "_handlers",
        "_known",
        "_misses",
        "_out",
        "_searches",
        "_silence",
        "candidate",
        "fingers",
        "is_member",
        "me",
        "predecessor",
        "settings",
        "successors",
    )

    def __init__(self, me: Contact, settings: RingSettings, out: list[Effect]) -> None:
        self.me = me
        self.settings = settings
        self.is_member = False
        self.predecessor: Contact | None = None
        self.successors: list[Contact] = []
        #: nearer to me than the first successor, said to exist, not yet heard from
        self.candidate: Contact | None = None
        self.fingers: dict[int, Contact] = {}
        self._out = out
        self._bootstraps: list[Address] = []  # of the ring to join; empty once a member
        self._awaited: Contact | None = None  # whom the open question was put to
        self._misses = 0
        self._silence = 0  # rounds since the predecessor was heard from
        self._searches: dict[int, tuple[int, int]] = {}  # operation to (position, hops so far)
        self._exponent = 0
        self._asked_finger: Contact | None = None
        self._known: list[tuple[int, Contact]] | None = None  # (distance, contact) in order; None: to be made again
        self._handlers: dict[type, Callable[[Any], None]] = {
            Ask: self._answer,
            State: self._learn,
            Ping: self._pong,
            Pong: self._hear,
            Leaving: self._let_go,
            Step: self._step,
            Nearer: self._nearer,
        }

    # -- becoming a member, and ceasing to be one ------------------------------------------------------------------

    def found(self, members: Iterable[Contact]) -> None:
        """Start a ring with these members, of whom I am one; r + 1 or more of them make it safe against failures."""
        ordered = sorted(members, key=lambda c: (c.id - self.me.id) & self._mask)
        assert ordered[0] == self.me
        self.successors = (ordered[1:] or ordered)[: self.settings.successors]
        self.predecessor = ordered[-1]
        self.is_member = True
        self._start_ticks()

    def join(self, bootstraps: Iterable[Address]) -> None:
        """Become a member of the ring that the nodes at these addresses belong to; they are tried in turn."""
        self._bootstraps = list(bootstraps)
        self._start_ticks()
        self._join_again()

    def leave(self) -> None:
        """Tell the neighbours; they treat it as a failure that they need not wait to notice."""
        self.is_member = False
        for neighbour in dict.fromkeys((self.predecessor, self.first_successor)):
            if neighbour is not None and neighbour != self.me:
                self._send(neighbour.address, Leaving(self.me))

    def _start_ticks(self) -> None:
        # The first rounds of different nodes fall at different times, told apart by the bits of their ids.
        spread = self.me.id % 1021 / 1021
        self._out.append(Start(int(self.settings.stabilise_ms * spread), Tick.STABILISE))
        self._out.append(Start(int(self.settings.fix_fingers_ms * spread), Tick.FIX_FINGERS))

    # -- in ---------------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> bool:
        """Handle a message of the ring's own; False: it is none."""
        handler = self._handlers.get(type(message))
        if handler is None:
            return False
        handler(message)
        return True

    def fire(self, tick: Tick) -> None:
        """Do a round of maintenance and start its timer again."""
        if tick is Tick.STABILISE:
            self._out.append(Start(self.settings.stabilise_ms, tick))
            self.stabilise()
        elif tick is Tick.FIX_FINGERS:
            self._out.append(Start(self.settings.fix_fingers_ms, tick))
            if self.is_member:
                self._fix_finger()

    # -- stabilise and rectify -------------------------------------------------------------------------------------

    def stabilise(self) -> None:
        """One round: count the question that is still open, then ask the first successor."""
        if not self.is_member:
            self._join_again()
            return
        if self._awaited is not None:
            self._misses += 1
            if self._awaited == self.candidate:  # not confirmed: not taken
                self.candidate = None
            elif self._misses >= self.settings.misses:
                self.drop(self._awaited)
        self._check_predecessor()
        head = self.first_successor
        if head == self.me:  # alone, until somebody takes itself for my predecessor
            self.candidate = self.predecessor if self.predecessor != self.me else None
            head = self.candidate or head
        if head != self.me:
            self._ask(head, notify=head != self.candidate)

    def _check_predecessor(self) -> None:
        if self.predecessor in (None, self.me):
            return
        self._silence += 1
        if self._silence > 2 + self.settings.misses:
            self.drop(self.predecessor)
        elif self._silence > 2:
            assert self.predecessor is not None
            self._send(self.predecessor.address, Ping(self.me))

    def _answer(self, ask: Ask) -> None:
        if not self.is_member:
            return
        if ask.notify:
            self._rectify(ask.sender)
        self._send(ask.sender.address, State(self.me, self.predecessor, tuple(self.successors)))

    def _rectify(self, sender: Contact) -> None:
        current = self.predecessor
        if current is None or current == self.me or between(current.id, sender.id, self.me.id):
            self.predecessor = sender
        if self.predecessor == sender:
            self._silence = 0

    def _learn(self, state: State) -> None:
        sender, nearer = state.sender, state.predecessor
        if sender == self._awaited:
            self._awaited, self._misses = None, 0
        if not self.is_member:
            self._enter(state)
        elif sender == self.first_successor:
            self._adopt(state)
            if nearer is not None and between(self.me.id, nearer.id, sender.id):
                self.candidate = nearer
                self._ask(nearer, notify=False)
        elif sender == self.candidate:
            self.candidate = None
            if between(self.me.id, sender.id, self.first_successor.id):
                self._adopt(state)
                self._ask(sender, notify=True)

    def _adopt(self, state: State) -> None:
        """Follow the sender with its whole list, as far as it does not come round to me."""
        followers = [state.sender]
        for contact in state.successors[: self.settings.successors - 1]:
            if contact.id == self.me.id:
                break
            followers.append(contact)
        if followers != self.successors:
            self.successors = followers
            self._known = None

    def _ask(self, contact: Contact, *, notify: bool) -> None:
        if contact != self._awaited:
            self._awaited, self._misses = contact, 0
        self._send(contact.address, Ask(self.me, notify))

    def drop(self, contact: Contact | None) -> None:
        """A node taken for dead leaves all tables; if it was the first successor, the next one is asked at once."""
        if contact is None:
            return
        was_first = self.successors[:1] == [contact]
        if contact in self.successors:
            self.successors.remove(contact)
            self._known = None
        self.drop_finger(contact)
        if self.predecessor == contact:
            self.predecessor, self._silence = None, 0
        if self.candidate == contact:
            self.candidate = None
        if self._awaited == contact:
            self._awaited, self._misses = None, 0
        if not self.successors and was_first:
            self.is_member = False  # nobody is left to follow: join again, as a new node
        elif was_first and self.is_member:
            self._ask(self.first_successor, notify=True)

    # -- joining ----------------------------------------------------------------------------------------------------

    def _join_again(self) -> None:
        if self._bootstraps:
            self._awaited = None
            first = self._bootstraps.pop(0)
            self._bootstraps.append(first)
            self._send(first, Step(self.me, self.me.id, JOINING))

    def _enter(self, state: State) -> None:
        if not self._bootstraps or state.sender.id == self.me.id:
            return
        nearer = state.predecessor
        if nearer is not None and nearer != self.me and between(self.me.id, nearer.id, state.sender.id):
            self._ask(nearer, notify=False)
            return
        self._adopt(state)
        self.is_member, self._bootstraps = True, []
        self._ask(state.sender, notify=True)

    # -- look-ups, seen from one node ------------------------------------------------------------------------------

    @property
    def _mask(self) -> int:
        return (1 << self.settings.bits) - 1

    @property
    def first_successor(self) -> Contact:
        return self.successors[0] if self.successors else self.me

    def owns(self, position: int) -> bool:
        """Whether I know that I own a position: it lies after my predecessor and not after me."""
        return self.predecessor is not None and within(self.predecessor.id, position, self.me.id)

    def precedes(self, position: int) -> bool:
        """Whether my first successor owns a position, as far as I know."""
        return within(self.me.id, position, self.first_successor.id)

    def nearest(self, position: int, avoid: Collection[Contact] = ()) -> Contact:
        """The node I know that most closely precedes a position: the next hop of a look-up."""
        if self._known is None:
            contacts = {*self.fingers.values(), *self.successors} - {self.me}
            self._known = sorted(((c.id - self.me.id) & self._mask, c) for c in contacts)
        place = bisect_left(self._known, (((position - self.me.id) & self._mask),))
        for index in range(place - 1, -1, -1):
            contact = self._known[index][1]
            if contact not in avoid:
                return contact
        return self.first_successor

    def seek(self, operation: int, position: int) -> None:
        """Find the owner of a position iteratively, asking one node after another; `Found` comes to my own address.

        Hops are counted as in a recursive look-up (`lookup`): one for each node asked, and one to the owner.
        """
        contact, is_owner = self._nearest_or_owner(position)
        self._search(operation, position, int(contact != self.me), contact, is_owner=is_owner)

    def _search(self, operation: int, position: int, hops: int, contact: Contact, *, is_owner: bool) -> None:
        if is_owner:
            self._send(self.me.address, Found(operation, contact, hops))
        else:
            self._searches[operation] = (position, hops)
            self._send(contact.address, Step(self.me, position, SEARCHING + operation))

    def _nearest_or_owner(self, position: int) -> tuple[Contact, bool]:
        if self.owns(position):
            return self.me, True
        if self.precedes(position):
            return self.first_successor, True
        return self.nearest(position), False

    def _step(self, step: Step) -> None:
        if self.is_member:
            contact, is_owner = self._nearest_or_owner(step.position)
            self._send(step.sender.address, Nearer(self.me, step.request, contact, is_owner))

    def _nearer(self, answer: Nearer) -> None:
        contact = answer.contact
        if answer.request >= SEARCHING:
            position, hops = self._searches.pop(answer.request - SEARCHING, (0, MAX_HOPS))
            if hops < MAX_HOPS:
                self._search(answer.request - SEARCHING, position, hops + 1, contact, is_owner=answer.is_owner)
        elif answer.request == JOINING:
            if not self._bootstraps or contact == self.me:
                return
            if answer.is_owner:
                self._ask(contact, notify=False)
            else:
                self._send(contact.address, Step(self.me, self.me.id, JOINING))
        elif answer.request == self._exponent and answer.sender == self._asked_finger:
            if answer.is_owner:
                self._asked_finger = None
                if contact != self.me and self.fingers.get(answer.request) != contact:
                    self.fingers[answer.request] = contact
                    self._known = None
            elif contact != self._asked_finger:
                self._ask_finger(contact)

    # -- fingers ----------------------------------------------------------------------------------------------------

    def _fix_finger(self) -> None:
        if self._asked_finger is not None:
            self.drop_finger(self._asked_finger)
            self._asked_finger = None
        reach = (self.first_successor.id - self.me.id) & self._mask
        if not reach:
            return
        # The fingers up to the first successor are the first successor.
        self._exponent += 1
        if not reach.bit_length() <= self._exponent < self.settings.bits:
            self._exponent = reach.bit_length()
        if self._exponent < self.settings.bits:
            self._ask_finger(self.nearest((self.me.id + (1 << self._exponent)) & self._mask))

    def _ask_finger(self, contact: Contact) -> None:
        self._asked_finger = contact
        position = (self.me.id + (1 << self._exponent)) & self._mask
        self._send(contact.address, Step(self.me, position, self._exponent))

    def drop_finger(self, contact: Contact) -> None:
        stale = [e for e, c in self.fingers.items() if c == contact]
        for exponent in stale:
            del self.fingers[exponent]
        if stale:
            self._known = None

    # -- small answers ---------------------------------------------------------------------------------------------

    def _pong(self, ping: Ping) -> None:
        if self.is_member:
            self._send(ping.sender.address, Pong(self.me))

    def _hear(self, pong: Pong) -> None:
        if pong.sender == self.predecessor:
            self._silence = 0

    def _let_go(self, leaving: Leaving) -> None:
        self.drop(leaving.sender)

    def _send(self, to: Address, message: Message) -> None:
        self._out.append(Send(to, message))
