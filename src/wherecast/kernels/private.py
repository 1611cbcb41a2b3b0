"""Folders that nobody else can write: where compiled kernels are kept must be one.

Numba keeps compiled code in files and runs what it finds there, so whoever can write these files runs code as us. Beside the
package and in the home directory they are as safe as the package itself. `NUMBA_CACHE_DIR` may point anywhere, such as to a
shared temporary directory, where another user may have made the folder before us.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make_private(folder: Path) -> Path:
    """Make a folder for us alone, or see that the one that is there is ours and nobody else can write to it.

    Raises PermissionError if it is not; a link is not followed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise PermissionError(
                f"{folder} is not a folder but a link or a file; remove it or choose another"
            ) from None
        if status.st_uid not in (os.getuid(), 0):  # the administrator can change everything anyway
            raise PermissionError(
                f"{folder} belongs to user {status.st_uid}, who could put anything there; choose a folder of your own"
            ) from None
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"{folder} can be written by others; take that right away (chmod go-w) or choose another folder"
            ) from None
    return folder
