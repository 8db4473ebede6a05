"""Where a link of a BMC leads: a path of its own, and never to another host."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit

from bcmetal_drivers.errors import Malformed

PATH_LIMIT: Final = 2048
AS_IT_IS: Final = "/%:@!$&'()*+,;=~-._"


def own_path(origin: str, link: str, asked: str) -> str:
    """The path of a link that a service at this origin gave. `asked`: where it stood. Raises Malformed for a link to elsewhere."""
    if not isinstance(link, str) or not link or len(link) > PATH_LIMIT or not link.isprintable():
        raise Malformed(f"{asked}: a link that is no path")
    try:
        parts = urlsplit(link)
    except ValueError as error:
        raise Malformed(f"{asked}: a link that is no path") from error
    if parts.scheme or parts.netloc:
        there = f"{parts.scheme}://{parts.netloc}".lower()
        default = {"https": ":443", "http": ":80"}.get(parts.scheme.lower(), "")
        if origin.lower() not in (there, there + default):
            raise Malformed(f"{asked}: a link or redirect to another origin is not followed")
    path = quote(parts.path, safe=AS_IT_IS)
    if not path.startswith("/"):
        raise Malformed(f"{asked}: a link that is no absolute path")
    query = quote(parts.query, safe=AS_IT_IS + "?")
    return f"{path}?{query}" if query else path


def path_alone(link: str | None) -> str | None:
    """The path that a link names, whatever host it names: some BMCs call themselves by a name that leads elsewhere, or nowhere. None: it names none."""
    if not link or len(link) > PATH_LIMIT or not link.isprintable():
        return None
    try:
        parts = urlsplit(link)
    except ValueError:
        return None
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return path if path.startswith("/") and not path.startswith("//") else None
