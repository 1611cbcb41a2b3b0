"""Where a webhook may go: public addresses only, resolved once, and the connection is made to what was checked.

Theory of operation. The naive way checks the host's name, or resolves it, checks the address and connects to the name: a name may be
spelled as a number (`0x7f.1`), an address may carry another one inside (`::ffff:10.0.0.1`), and DNS may answer something else
the second time. Here the check is where the connection is made. `PinnedConnector` resolves the name, refuses the host if any of
its addresses is not public, and connects to the address it has just looked at. TLS still verifies the name, which comes from the
URL. Whatever the spelling, it has become an address by then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]
#: An address, a port, TLS with the name to verify, or neither.
Connect = Callable[[str, int, ssl.SSLContext | None, str | None], Awaitable[tuple[StreamReader, StreamWriter]]]

#: What IANA keeps for special use (RFC 6890 and its successors), multicast and the former class E.
_SPECIAL_4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
#: Global unicast, and in it what is not.
_GLOBAL_6 = IPv6Network("2000::/3")
_SPECIAL_6 = [IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")]
_TEREDO, _SIX_TO_FOUR = IPv6Network("2001::/32"), IPv6Network("2002::/16")
#: An IPv4 address in the last 32 bits: NAT64. Others (mapped, compatible, translated) are refused whatever they carry.
_NAT64 = IPv6Network("64:ff9b::/96")
#: ISATAP has the address behind these bits, in any network.
_ISATAP = (0x00005EFE, 0x02005EFE)


class AddressRefusedError(OSError):
    """The host has an address that webhooks may not go to."""


def is_public(address: Address) -> bool:
    """Whether anybody on the internet may be behind an address, an IPv4 address inside it included."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    if address.scope_id is not None:
        return False
    carried = _carried(address)
    if carried is not None:
        return all(map(is_public, carried))
    return address in _GLOBAL_6 and not any(address in network for network in _SPECIAL_6)


def _carried(address: IPv6Address) -> list[IPv4Address] | None:
    """The IPv4 addresses that packets to an IPv6 address may reach; None: it carries none."""
    bits = int(address)
    if address in _NAT64:
        return [IPv4Address(bits & 0xFFFFFFFF)]
    if address in _SIX_TO_FOUR:
        return [IPv4Address((bits >> 80) & 0xFFFFFFFF)]
    if address in _TEREDO:
        return [IPv4Address((bits >> 64) & 0xFFFFFFFF), IPv4Address(~bits & 0xFFFFFFFF)]
    if address in _GLOBAL_6 and (bits >> 32) & 0xFFFFFFFF in _ISATAP:
        return [IPv4Address(bits & 0xFFFFFFFF)]
    return None


class AddressRules:
    """Public addresses, and those of an allow-list."""

    def __init__(self, allowed: str = "") -> None:
        """`allowed` has networks, separated by commas: `10.1.0.0/16, ::1/128`. Raises ValueError."""
        self.networks: list[IPv4Network | IPv6Network] = [
            ipaddress.ip_network(part.strip(), strict=False) for part in allowed.split(",") if part.strip()
        ]

    def allows(self, address: Address) -> bool:
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network for network in self.networks) or is_public(address)

    def choose(self, host: str, found: Iterable[str]) -> str:
        """The address to connect to. One that is not allowed is reason enough to refuse the host: its owner plays tricks."""
        chosen = None
        for text in found:
            address = ipaddress.ip_address(text)
            if not self.allows(address):
                raise AddressRefusedError(f"{host[:100]} is at {address}, which is not a public address")
            chosen = chosen or str(address)
        if chosen is None:
            raise AddressRefusedError(f"{host[:100]} has no address")
        return chosen


class ThreadResolver:
    """The system's resolver, in threads of its own: a name server that hangs keeps nobody else waiting."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(16, "wherecast-resolver")

    async def __call__(self, host: str, port: int) -> list[str]:
        look_up = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        try:
            return [str(found[4][0]) for found in await look_up]
        except (OSError, UnicodeError) as error:
            raise AddressRefusedError(f"{host[:100]} is not found: {error}") from None

    def close(self) -> None:
        """Do not wait for name servers."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def connect_to(
    address: str, port: int, tls: ssl.SSLContext | None, name: str | None
) -> tuple[StreamReader, StreamWriter]:
    """A connection to an address, which is not resolved again."""
    return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name)


@cache
def _verifying() -> ssl.SSLContext:
    """Verifies names. Made once in a process: reading all authorities takes 30 ms."""
    return ssl.create_default_context()


class PinnedConnector:
    """Connects to the address that it has resolved and checked, and to no other."""

    def __init__(self, rules: AddressRules, resolve: Resolver, connect: Connect) -> None:
        self._rules, self._resolve, self._connect = rules, resolve, connect
        self._tls = _verifying()

    async def open(self, host: str, port: int, *, is_tls: bool) -> tuple[StreamReader, StreamWriter]:
        """Resolve once, check, connect. Raises OSError."""
        address = self._rules.choose(host, await self._resolve(host, port))
        return await self._connect(address, port, self._tls if is_tls else None, host if is_tls else None)
