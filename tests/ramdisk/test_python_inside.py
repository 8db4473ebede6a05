"""The ramdisk's Python is the part of the standard library that the agent imports: none of that may be left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bcmetal.ramdisk.bytecode import needed

# Imported by the library itself where they are there, and done without where they are not.
OPTIONAL = frozenset({"_decimal", "_pydecimal", "_curses", "readline", "_crypt", "_asyncio"})
_LOADED = """
import ast, importlib, json, pathlib, pkgutil, sys
import bcmetal_agent, bcmetal_agent.tasks
for package in (bcmetal_agent, bcmetal_agent.tasks):
    for one in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if not one.name.endswith("__main__"):
            module = importlib.import_module(one.name)
            for node in ast.walk(ast.parse(pathlib.Path(module.__file__).read_text())):  # also what a function imports
                names = [n.name for n in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
                for name in names:
                    if name.partition(".")[0] in sys.stdlib_module_names:
                        importlib.import_module(name)
print(json.dumps({name: module.__file__ for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)}))
"""


def test_every_module_that_the_agent_imports_is_in_the_ramdisk() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", _LOADED], capture_output=True, text=True, timeout=60, check=True)
    loaded: dict[str, str] = json.loads(done.stdout)
    library = Path(json.__file__).parents[1]
    inside = {
        name: Path(file).relative_to(library)
        for name, file in loaded.items()
        if Path(file).is_relative_to(library) and "site-packages" not in file
    }
    assert {"ssl", "json", "argparse", "concurrent.futures.thread", "ctypes"} <= set(inside)
    lacking = {name for name, path in inside.items() if not needed(f"usr/lib/python3.11/{path}")}
    assert lacking <= OPTIONAL
