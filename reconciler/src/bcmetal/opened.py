"""Sealed rows of an operation and of its BMC, opened when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import SecretStr

from bcmetal.errors import VaultError
from bcmetal.store.values import Sealed
from bcmetal.vault import Vault


class Secrets(Mapping[str, SecretStr]):
    """Sealed rows, opened when they are asked for: `password` of an operation, `current.password`, `candidate.password` of a BMC."""

    def __init__(self, vault: Vault, sealed: Sequence[Sealed], operation_id: str, binding: str) -> None:
        self._vault = vault
        self._binding = binding
        self._rows: dict[str, Sealed] = {}
        for row in sealed:
            if row.owner_kind == "bmc":
                self._rows[f"{row.slot}.{row.field}"] = row
            elif row.owner_kind == "operation" and row.owner_id == operation_id:
                self._rows[row.field] = row

    def __getitem__(self, name: str) -> SecretStr:
        row = self._rows.get(name)
        if row is None:
            raise VaultError(f"no secret {name} is stored")
        return self._vault.open(row, row.owner_kind, self._binding if row.owner_kind == "bmc" else "")

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Mapping[str, Sealed]:
        return self._rows
