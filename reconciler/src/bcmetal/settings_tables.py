"""What every table of the configuration has: nothing unknown is in it, and where it stands under a name, it knows the name."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, PrivateAttr


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, hide_input_in_errors=True)


class Named(Table):
    """A table under a name: `[networks.bmc]` is named `bmc`."""

    _name: str = PrivateAttr("")

    @property
    def name(self) -> str:
        return self._name
