"""`[credentials.NAME]`: one user and password for many BMCs, or a list of labels with those that each BMC left its factory with."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Any, Protocol, Self

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    model_validator,
)

from bcmetal.errors import VaultError
from bcmetal.settings_tables import Named
from bcmetal.settings_words import Word, claiming, secret_place


class Opener(Protocol):
    """The vault, as far as a credential needs it."""

    def open(self, sealed: Any, purpose: str, bind: str = "") -> SecretStr: ...


class NamedCredential(Named):
    """Sent to BMCs of the listed networks, and nowhere else. Either `username` and `password`, or `manifest`, a CSV with the columns bmc_mac,
    serial, username and password, each line for one machine alone. `on_enroll`: `claim:NAME` makes an account of that credential's user
    name with a random password at each BMC of the list, and switches the one of the label off."""

    username: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    password: Annotated[str, AfterValidator(secret_place)] | None = None
    manifest: Path | None = None
    on_enroll: Annotated[str, AfterValidator(claiming)] | None = None
    networks: Annotated[tuple[Word, ...], Field(min_length=1)]
    _row: object | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.manifest is not None and (self.username is not None or self.password is not None):
            raise ValueError(
                "has a manifest, whose lines have the user names and passwords: leave username and password out"
            )
        if self.manifest is None and (self.username is None or self.password is None):
            raise ValueError("needs username and password, or a manifest")
        if self.manifest is None and self.on_enroll is not None:
            raise ValueError("has on_enroll, which is for a manifest")
        return self

    @property
    def of_one_machine(self) -> bool:
        """Its passwords are each of one machine, so that no other is lost with them."""
        return self.manifest is not None

    @property
    def claims(self) -> str | None:
        """The credential whose account is made."""
        return None if self.on_enroll is None else self.on_enroll.removeprefix("claim:")

    @property
    def sealed_name(self) -> str | None:
        """The name behind `sealed:`."""
        place = self.password or ""
        return place.removeprefix("sealed:") if place.startswith("sealed:") else None

    def password_from(self, vault: Opener) -> SecretStr:
        """Raises VaultError when it is not there."""
        if self.password is None:
            raise VaultError(f"credential {self.name} is a list of labels, and has no password of its own")
        if self.sealed_name is None:
            return read_secret(self.password)
        if self._row is None:
            wanted = self.sealed_name
            raise VaultError(f"no password {wanted} is sealed: `bcmetal credential set {wanted}`, then reload")
        return vault.open(self._row, "credential")


def secret_path(place: str) -> Path:
    """The file behind `file:PATH` or `credential:NAME` (systemd's LoadCredential)."""
    kind, _, rest = place.partition(":")
    return Path(rest) if kind == "file" else Path(os.environ.get("CREDENTIALS_DIRECTORY", "/run/credentials")) / rest


def read_secret(place: str) -> SecretStr:
    """The first line of the file behind `place`, which nobody else may read. Raises VaultError."""
    path = secret_path(place)
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise VaultError(f"the secret at {place} cannot be read") from error
    if stat.S_ISREG(mode) and mode & 0o077:
        raise VaultError(f"others can read the secret at {place}: `chmod 600` it first")
    if not text:
        raise VaultError(f"the secret at {place} is empty")
    return SecretStr(text)
