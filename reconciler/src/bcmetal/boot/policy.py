"""What the site's settings allow an image fetch."""

from __future__ import annotations

from bcmetal.boot.hops import FetchPolicy
from bcmetal.settings import Settings


def fetch_policy(settings: Settings) -> FetchPolicy:
    """Listed hosts and networks; the address of an image that the configuration names is listed by that."""
    return FetchPolicy(settings.image_hosts(), settings.daemon.image_limit_bytes, settings.daemon.images_ca)
