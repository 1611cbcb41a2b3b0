"""Copies of lists and metadata at successors, kept complete through joins, leaves and crashes.

Theory of operation
-------------------
A node owns the positions after its predecessor up to itself, its *zone*. Whatever is stored in a zone is also kept by
the owner's next `copies - 1` successors: when owners die, the positions fall to nodes that have the entries already.

- *Storing.* The owner passes an entry to its successors and answers the origin when all of them have it. If one does
  not answer, the origin sends again, and by then the ring knows better successors.
- *Repair.* Once a round the owner sends each of them a digest of its zone. Where digests differ, the other answers with
  its entries, the owner lays them over its own, and sends back what the other lacks. Entries join in any order
  (`storage`), so there is nothing to coordinate.
- *Shrinking.* When a nearer predecessor appears, the part of the zone that is now its own is handed over to it.
- *Growing.* When the predecessor dies, its zone falls to this node, which has been its first copy. It may have joined too
  late to have everything; so it is *settled* there only when all its successors have been compared with.

A node answers queries only where it is settled: a list that may be incomplete is not shown, and the event's
publisher asks again. Copies in a zone that no owner has asked about for `lease` rounds are forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wherecast.overlay.messages import Copied, Copy, Effect, Entry, Handover, Message, Send, Start, Sync, Synced, Tick
from wherecast.overlay.positions import Address, Contact, within
from wherecast.overlay.ring import Ring
from wherecast.overlay.storage import Lists


@dataclass(slots=True)
class _Copying:
    """An entry on its way to the successors, and the answer that is due when all have it."""

    waiting: set[Address]
    answer: Send
    rounds: int = 0


@dataclass(slots=True)
class _Lease:
    """A zone of another node that copies are kept of."""

    end: int
    rounds: int = field(default=0)


class Replication:
    """Sees to the copies of one node."""

    def __init__(self, ring: Ring, lists: Lists, out: list[Effect]) -> None:
        self._ring = ring
        self._lists = lists
        self._out = out
        self._seen: Contact | None = None
        self._settled_from: int | None = None  # everything in (this, me] is here
        self._comparing: tuple[int, set[Address]] | None = None  # the start of the zone, who has not answered yet
        self._copying: dict[int, _Copying] = {}
        self._next_token = 1
        self._leases: dict[int, _Lease] = {}

    def found(self) -> None:
        """A ring begins: there is nothing to be had from others."""
        self._seen = self._ring.predecessor
        assert self._seen is not None
        self._settled_from = self._seen.id
        self.start()

    def start(self) -> None:
        """Start the rounds of repair."""
        spread = self._ring.me.id % 1019 / 1019
        self._out.append(Start(int(self._ring.settings.repair_ms * spread), Tick.REPAIR))

    def is_settled(self, position: int) -> bool:
        """Whether everything at a position is here."""
        return self._settled_from is not None and within(self._settled_from, position, self._ring.me.id)

    # -- the zone changes -------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Act on a new predecessor. Called after everything that may have changed it."""
        now = self._ring.predecessor
        if now == self._seen:
            return
        self._seen = now
        if now is None or self._settled_from is None:
            return
        if now.id != self._settled_from and self.is_settled(now.id):
            start, self._settled_from = self._settled_from, now.id
            entries = self._lists.entries(start, now.id)
            self._send(now.address, Handover(self._ring.me, start, now.id, entries))
        elif now.id != self._settled_from:
            self._compare()

    def hand_on(self) -> None:
        """Before leaving: the zone goes to the first successor."""
        ring = self._ring
        if self._settled_from is not None and ring.first_successor != ring.me:
            entries = self._lists.entries(self._settled_from, ring.me.id)
            self._send(ring.first_successor.address, Handover(ring.me, self._settled_from, ring.me.id, entries))

    def take_over(self, handover: Handover) -> None:
        """A zone that is mine from now on, or that extends mine."""
        for entry in handover.entries:
            self._lists.put(entry)
        if handover.end == self._ring.me.id or (self._settled_from is not None and handover.end == self._settled_from):
            self._settled_from = handover.start

    # -- storing ----------------------------------------------------------------------------------------------------

    def copy(self, entry: Entry, answer: Send) -> None:
        """Store an entry here and at the successors, then send the answer."""
        self._lists.put(entry)
        copies = self._followers()
        if not copies:
            self._out.append(answer)
            return
        token, self._next_token = self._next_token, self._next_token + 1
        self._copying[token] = _Copying({c.address for c in copies}, answer)
        for contact in copies:
            self._send(contact.address, Copy(self._ring.me, token, (entry,)))

    def keep_copy(self, copy: Copy) -> None:
        for entry in copy.entries:
            self._lists.put(entry)
        if copy.token:
            self._send(copy.sender.address, Copied(self._ring.me, copy.token))

    def copied(self, message: Copied) -> None:
        copying = self._copying.get(message.token)
        if copying is not None:
            copying.waiting.discard(message.sender.address)
            if not copying.waiting:
                del self._copying[message.token]
                self._out.append(copying.answer)

    # -- repair -----------------------------------------------------------------------------------------------------

    def repair(self) -> None:
        """One round: compare with the successors, and forget what has had its time."""
        settings = self._ring.settings
        self._out.append(Start(settings.repair_ms, Tick.REPAIR))
        if not self._ring.is_member:
            return
        self._compare()
        self._copying = {t: c for t, c in self._copying.items() if c.rounds < 2}
        for copying in self._copying.values():
            copying.rounds += 1
        self._lists.clear_graves(settings.lease)
        self._expire(settings.lease)

    def _compare(self) -> None:
        ring = self._ring
        if ring.predecessor is None or ring.predecessor == ring.me:
            return
        start, copies = ring.predecessor.id, self._followers()
        if not copies:  # nobody has more than is here
            self._settled_from = start
            return
        self._comparing = (start, {c.address for c in copies})
        digest = self._lists.digest(start, ring.me.id)
        for contact in copies:
            self._send(contact.address, Sync(ring.me, start, ring.me.id, digest))

    def sync(self, sync: Sync) -> None:
        """A zone that I keep a copy of: say whether it is the same."""
        self._leases[sync.start] = _Lease(sync.end)
        is_same = self._lists.digest(sync.start, sync.end) == sync.digest
        entries = () if is_same else self._lists.entries(sync.start, sync.end)
        self._send(sync.sender.address, Synced(self._ring.me, sync.start, sync.end, is_same, entries))

    def synced(self, answer: Synced) -> None:
        """What a successor has in my zone."""
        if not answer.is_same:
            for entry in answer.entries:
                self._lists.put(entry)
            theirs = set(answer.entries)
            lacking = tuple(e for e in self._lists.entries(answer.start, answer.end) if e not in theirs)
            if lacking:
                self._send(answer.sender.address, Copy(self._ring.me, 0, lacking))
        if self._comparing is not None and self._comparing[0] == answer.start:
            self._comparing[1].discard(answer.sender.address)
            if not self._comparing[1]:
                self._settled_from, self._comparing = answer.start, None

    def _expire(self, lease: int) -> None:
        for held in self._leases.values():
            held.rounds += 1
        expired = [start for start, held in self._leases.items() if held.rounds > lease]
        if expired and self._settled_from is not None:
            for start in expired:
                del self._leases[start]
            zones = [(start, held.end) for start, held in self._leases.items()]
            self._lists.keep([(self._settled_from, self._ring.me.id), *zones])

    def _followers(self) -> list[Contact]:
        """The successors that keep my copies."""
        return [c for c in self._ring.successors[: self._ring.settings.copies - 1] if c != self._ring.me]

    def _send(self, to: Address, message: Message) -> None:
        self._out.append(Send(to, message))
