"""Python in the ramdisk: what of the standard library is left out, and bytecode in place of source.

Compiled by the ramdisk's own interpreter, on the host, from a temporary folder: its libraries are its own, too.
"""

from __future__ import annotations

import fnmatch
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bcmetal.boot.cpio import Entry, file
from bcmetal.ramdisk.faults import BuildFailed
from bcmetal.ramdisk.tree import Tree, write_out

PACKAGES: Final = "usr/lib/python3/dist-packages"
_LOADER: Final = "usr/lib64/ld-linux-x86-64.so.2"
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"

# Below usr/lib/python3.N/.
_NOT_NEEDED: Final = (
    "config-3*",
    "__phello__*",
    "_aix*",
    "_osx*",
    "_pyrepl*",
    "_sysconfigdata*",
    "antigravity*",
    "asyncio/*",
    "cProfile*",
    "cgi*",
    "concurrent/futures/process*",
    "ctypes/macholib*",
    "curses/*",
    "dbm/*",
    "distutils/*",
    "doctest*",
    "encodings/[!_]*",
    "ensurepip/*",
    "ftplib*",
    "idlelib/*",
    "imaplib*",
    "lib-dynload/_codecs_*",
    "lib-dynload/_crypt.*",
    "lib-dynload/_curses*",
    "lib-dynload/_dbm*",
    "lib-dynload/_decimal*",
    "lib-dynload/_multibytecodec*",
    "lib-dynload/_sqlite3*",
    "lib-dynload/_test*",
    "lib-dynload/_tkinter*",
    "lib-dynload/_xx*",
    "lib-dynload/audioop*",
    "lib-dynload/nis.*",
    "lib-dynload/ossaudiodev*",
    "lib-dynload/readline*",
    "lib-dynload/xx*",
    "lib2to3/*",
    "mailbox*",
    "msilib/*",
    "multiprocessing/*",
    "nntplib*",
    "nturl2path*",
    "pdb*",
    "pickletools*",
    "poplib*",
    "profile*",
    "pstats*",
    "pydoc*",
    "smtp*",
    "sqlite3/*",
    "sre_*",
    "sunau*",
    "tabnanny*",
    "telnetlib*",
    "test/*",
    "this.py",
    "tkinter/*",
    "turtle*",
    "unittest/*",
    "venv/*",
    "wave*",
    "webbrowser*",
    "wsgiref/*",
    "xdrlib*",
    "xml/*",
    "xmlrpc/*",
    "zipapp*",
    "_pydecimal*",
    "LICENSE.txt",
    "sitecustomize*",
)
_ENCODINGS: Final = (
    "aliases",
    "ascii",
    "cp437",
    "hex_codec",
    "idna",
    "latin_1",
    "punycode",
    "utf_16_le",
    "utf_8",
    "utf_8_sig",
)


def needed(path: str) -> bool:
    """Of a tree's path: no part of Python that an agent never imports."""
    if path.startswith(f"{PACKAGES}/"):
        below = path.removeprefix(f"{PACKAGES}/")
        parts = below.split("/")
        return not (
            parts[0].endswith((".egg-info", ".dist-info")) or "tests" in parts or below.endswith((".pyi", ".c", ".h"))
        )
    if not path.startswith("usr/lib/python3"):
        return not path.startswith(("usr/share/python3", "usr/share/pycharm"))
    below = path.removeprefix("usr/lib/").partition("/")[2]
    if any(below == f"encodings/{name}.py" for name in _ENCODINGS):
        return True
    return not any(fnmatch.fnmatchcase(below, pattern) for pattern in _NOT_NEEDED)


def compiled(tree: Tree) -> Tree:
    """Each `.py` replaced by its `.pyc`, which is believed without looking for a source."""
    sources = {path for path in tree if path.endswith(".py") and "/python3" in path}
    interpreters = sorted(path for path in tree if fnmatch.fnmatchcase(path, "usr/bin/python3.[0-9]*"))
    if not interpreters or _LOADER not in tree:
        raise BuildFailed("the packages hold no Python")
    with tempfile.TemporaryDirectory(prefix="bcmetal-python-") as name:
        root = Path(name)
        wanted = {p: e for p, e in tree.items() if p.startswith(("usr/lib/", "usr/lib64/", "usr/bin/python3"))}
        write_out({p: e for p, e in wanted.items() if not p.startswith(("usr/lib/modules", "usr/lib/firmware"))}, root)
        folders = sorted({str(root / Path(*Path(path).parts[:4])) for path in sources if "dist-packages" in path})
        folders += sorted({str(root / Path(*Path(path).parts[:3])) for path in sources if "dist-packages" not in path})
        command = [str(root / _LOADER), "--library-path", str(root / _LIBRARIES), str(root / interpreters[-1])]
        command += ["-I", "-S", "-X", "utf8", "-c", _COMPILE, str(root), *folders]
        done = subprocess.run(  # noqa: S603 - a list of arguments
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=300,
            env={"LC_ALL": "C.UTF-8"},
        )
        if done.returncode != 0:
            raise BuildFailed(
                f"Python could not be compiled: {(done.stderr or done.stdout).strip()[-300:]}",
                "the ramdisk is built on an x86-64 host",
            )
        result: dict[str, Entry] = {path: entry for path, entry in tree.items() if path not in sources}
        for path in sorted(sources):
            code = root / f"{path}c"
            if code.exists():
                result[f"{path}c"] = file(code.read_bytes())
        return result


# -I -S: nothing of the host; the interpreter finds its library beside itself. Names in tracebacks are those of the ramdisk.
_COMPILE: Final = """
import compileall, sys
root, *folders = sys.argv[1:]
for folder in folders:
    compileall.compile_dir(
        folder, maxlevels=20, quiet=2, legacy=True, force=True, stripdir=root, prependdir="/",
        invalidation_mode=__import__("py_compile").PycInvalidationMode.UNCHECKED_HASH,
    )
"""
