"""The build backend of the top folder, which is no distribution: tells `pip install .` what to install instead."""

from __future__ import annotations

from typing import NoReturn

INSTEAD = "this folder holds three distributions: pip install ./drivers ./agent ./reconciler"


def _refused(*_given: object) -> NoReturn:
    raise SystemExit(INSTEAD)


get_requires_for_build_wheel = get_requires_for_build_editable = get_requires_for_build_sdist = _refused
build_wheel = build_editable = build_sdist = _refused
