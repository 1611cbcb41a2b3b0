"""How many values a msgpack body holds, found without building any of them.

A byte can announce an array, and an empty array takes 64 bytes once it is built; five bytes can announce millions of elements,
whose list is laid out before the first is read. So a body is walked over first. Nothing that the walk refuses is a record:
records have no maps and no floats.
"""

from __future__ import annotations

#: Bytes of a value by its first byte, for those of a fixed length; 0: see below, or not allowed.
_FIXED = [0] * 256
_FIXED[0x00:0x80] = [1] * 0x80  # small integers
_FIXED[0xE0:0x100] = [1] * 0x20
_FIXED[0xA0:0xC0] = [1 + length for length in range(0x20)]  # short texts
_FIXED[0xC0], _FIXED[0xC2], _FIXED[0xC3] = 1, 1, 1  # None, False, True
_FIXED[0xCC:0xD4] = [2, 3, 5, 9] * 2  # integers
_FIXED[0xD4:0xD9] = [2 + length for length in (1, 2, 4, 8, 16)]  # extensions
#: Bytes before what is measured by the byte after the first: bytes, extensions, texts.
_SHORT = {0xC4: 2, 0xC7: 3, 0xD9: 2}
#: Bytes of the length that follows the first byte: bytes and texts; arrays.
_SIZED = {0xC5: 2, 0xC6: 4, 0xDA: 2, 0xDB: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}


def count_values(body: bytes, most: int) -> int:
    """The values of a body, those inside of arrays included. Raises ValueError if there are more, or if it is no record."""
    try:
        return _walk(body, most)
    except IndexError:
        raise ValueError("the end is missing") from None


def _walk(body: bytes, most: int) -> int:
    fixed, place, found, due = _FIXED, 0, 1, 1
    while due:
        due -= 1
        head = body[place]
        if step := fixed[head]:
            place += step
        elif 0x90 <= head < 0xA0 or head in _ARRAYS:
            width = _ARRAYS.get(head, 0)
            length = int.from_bytes(body[place + 1 : place + 1 + width], "big") if width else head & 0x0F
            place += 1 + width
            due += length
            found += length
            if found > most:
                raise ValueError(f"more than {most} values")
        elif head in _SHORT:
            place += _SHORT[head] + body[place + 1]
        elif head in _SIZED:
            width = _SIZED[head]
            place += 1 + width + int.from_bytes(body[place + 1 : place + 1 + width], "big")
        else:
            raise ValueError(f"a value that begins with byte {head:#04x}, which no record has")
    return found
