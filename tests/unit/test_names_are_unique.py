"""One word, one meaning: a name of a public class belongs to one class of the package."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import wherecast

PACKAGE = Path(wherecast.__file__).parent


def public_classes() -> dict[str, list[str]]:
    """The modules that define a class of each name; private modules and classes are left out."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[name].append(path.relative_to(PACKAGE).as_posix())
    return found


def test_two_public_classes_never_share_a_name():
    """A reader who meets a class name knows which class is meant, whatever module it is in."""
    shared = {name: modules for name, modules in public_classes().items() if len(modules) > 1}
    assert not shared
