"""Compiled code that is kept in files: when it is valid, and how it is loaded.

Theory of operation
-------------------
Numba keeps the code of a kernel beside its module, and a later process loads it. What Numba does around that serves compiling, and takes several
times as long as loading. So it is put off until something is compiled:

- *Numba's own modules.* Before it loads code Numba makes itself ready to compile: it imports 75 modules and registers what they can compile.
- *Its runtime.* Memory of arrays is counted by functions that Numba compiles in each process, to have them in the code of further kernels. Code that is there has
  them already, and calls only functions of C, by name (`_name_runtime`).
- *Bitcode.* A kernel that calls another needs the other's code in a form that LLVM can go on with. It is kept along with the code and read when such a caller is
  compiled (`_KeptLibrary`).
- *Modules of functions in the code.* The code of a kernel contains that of functions of Numba, `np.zeros` for example, and each has an *environment*: its constants, and the
  globals of its module, which only code that is not compiled reads. Numba imports the module for them (`_environment`).
- *Extensions of Numba* that are installed are for types that no kernel has. To find them, Numba reads the description of every installed package.

Whatever is compiled asks for all of this by itself.

*Validity.* Compiled code contains the kernels that it calls and the constants that it reads. Numba keeps it until the kernel's own module
changes, so that a change of a called kernel would go unnoticed. Here it is kept until the module changes, or one of the same package that it
imports at its top, at any depth.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, cast

from llvmlite import binding  # type: ignore[import-untyped]
from numba.core import caching as _caching
from numba.core import codegen as _codegen
from numba.core import compiler as _compiler
from numba.core import environment as _environments
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]

caching: Any = _caching  # without types of its own
codegen: Any = _codegen
compiler: Any = _compiler
environments: Any = _environments
runtime: Any = _nrt_python
_IMPORT = re.compile(rb"^(?:from|import) +([\w.]+)", re.MULTILINE)


def keep(kernel: Any) -> None:
    """Keep the code of a kernel that Python calls, as `cache=True` would."""
    kernel._cache = _KeptCode(kernel.py_func)  # noqa: SLF001
    kernel._compilation_chain_init_hook = _do_nothing  # noqa: SLF001 - it looks for extensions


def keep_helper(kernel: Any) -> None:
    """The same for a kernel that only kernels call: its code is loaded when such a caller is compiled."""
    kernel._cache = _HelperCode(kernel.py_func)  # noqa: SLF001


@cache
def source_stamp(module: str) -> str:
    """A digest of the source of a module and of those of its package that it imports. They must be loaded."""
    source = Path(cast("str", sys.modules[module].__file__)).read_bytes()
    digest = hashlib.blake2b(source, digest_size=16)
    package = module.partition(".")[0]
    for name in sorted({name.decode() for name in _IMPORT.findall(source)}):
        if name.partition(".")[0] == package:
            digest.update(source_stamp(name).encode())
    return digest.hexdigest()


class _HelperCode(caching.FunctionCache):  # type: ignore[misc]
    """Compiled code in files, kept as long as its source is the same."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        if sys.modules[function.__module__].__file__ is not None:
            stamp = source_stamp(function.__module__)
            self._cache_file = _KeptFile(self._cache_path, self._impl.filename_base, stamp)


class _KeptCode(_HelperCode):
    """The same, loaded without what only compiling needs."""

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The code for arguments of some types, or None. Numba's own begins with `target_context.refresh()`."""
        _name_runtime()
        with self._guard_against_spurious_io_errors():
            found = self._cache_file.load(self._index_key(signature, target_context.codegen()))
            return None if found is None else _rebuilt(target_context, *found)


class _KeptFile(caching.IndexDataCacheFile):  # type: ignore[misc]
    """The file of a kernel's code."""

    def _load_data(self, name: str) -> Any:
        with Path(self._data_path(name)).open("rb") as file:
            return _Unpickler(file).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        """What a file names, but for what makes environments."""
        return _environment if name == "_rebuild_env" else super().find_class(module, name)


def _environment(module: str, constants: Any, name: str) -> Any:
    """The environment of a function in compiled code; of globals only the name if the module is not loaded."""
    if module in sys.modules or environments.lookup_environment(name) is not None:
        return environments._rebuild_env(module, constants, name)  # noqa: SLF001
    made = environments.Environment({"__name__": module})  # the name is written when a caller is kept
    made.consts[:] = constants
    made.env_name = name
    environments.Environment._memo[name] = made  # noqa: SLF001
    return made


@cache
def _name_runtime() -> None:
    """Tell LLVM where the functions of C are that compiled code calls."""
    for name, address in runtime.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _do_nothing() -> None:
    pass


def _rebuilt(
    target_context: Any, kept: Any, function: Any, environment: Any, signature: Any, objectmode: Any, lifted: Any,
    type_annotation: Any, reload_init: Any, referenced_envs: Any,
) -> Any:  # fmt: skip
    """As Numba's `CompileResult._rebuild`, with a `_KeptLibrary`."""
    for prepare in reload_init:
        prepare()
    library = _KeptLibrary(target_context.codegen(), kept, function.llvm_cpython_wrapper_name)
    entry_point = target_context.get_executable(library, function, environment)
    for each in referenced_envs:
        library.codegen.set_env(each.env_name, each)
    return compiler.compile_result(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=environment,
        entry_point=entry_point,
        fndesc=function,
        type_annotation=type_annotation,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
        reload_init=reload_init,
        referenced_envs=referenced_envs,
    )


class _KeptLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """As Numba's `_unserialize` makes one, but its bitcode is read when something is linked with it."""

    _shared_module: Any

    def __init__(self, of: Any, kept: Any, entry: str) -> None:
        name, _, (code, self._bitcode) = kept
        super().__init__(of, name)
        self.enable_object_caching()
        self._set_compiled_object(code)
        self._finalize_final_module()
        of._engine._defined_symbols.add(entry)  # noqa: SLF001 - Numba finds by it what Python calls

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._bitcode)
        return self._shared_module
