"""No table but `sealed` holds a secret, and that one holds none that can be read."""

from __future__ import annotations

import os
from dataclasses import replace

from pydantic import SecretStr

from bcmetal.decisions import EndStatus
from bcmetal.states import SideVerb, State
from bcmetal.store import keys, nodes, operations, sealed, views
from bcmetal.store.values import MoveSealed, PutSealed, SetBmc
from bcmetal.vault import Vault, VaultKey, bmc_binding
from store.samples import NOW, Db, a_node, an_audit, an_end, an_operation, claim, everything, know, save, start


def test_a_planted_secret_is_in_no_table(db: Db) -> None:
    planted = "planted-" + os.urandom(8).hex()
    secret = SecretStr(planted)
    vault = Vault([VaultKey(os.urandom(32))])
    node_id = a_node(db)
    node = db.read(nodes.get, node_id)
    assert node is not None
    assert node.bmc is not None
    bmc = node.bmc
    binding = bmc_binding(bmc.host, bmc.trust_kind, bmc.trust_value)
    know(
        db,
        node_id,
        PutSealed(vault.seal("bmc", "bmc", bmc.bmc_id, "password", secret, bind=binding)),
        PutSealed(vault.seal("bmc", "bmc", bmc.bmc_id, "password", secret, bind=binding, slot="candidate")),
        MoveSealed(bmc.bmc_id, True),
        SetBmc({"proven_at": NOW, "cred_verified_at": NOW}),
    )
    op = an_operation()
    op = replace(op, sealed=(vault.seal("operation", "operation", op.operation_id, "userData", secret),))
    start(db, node_id, op=op)
    side = an_operation(SideVerb.SET_BMC_CREDENTIALS)
    side = replace(side, sealed=(vault.seal("operation", "operation", side.operation_id, "password", secret),))
    db.write(operations.queue_side, node_id, side, an_audit(node_id), [], NOW)
    [held] = claim(db)
    save(db, held, op.operation_id, an_end(node_id, op.operation_id, State.INSPECT_FAILED, EndStatus.FAILED))
    db.write(keys.insert, "ky_1", bytes.fromhex(vault.digest("key", planted)), "key:anna", "tenant-a", NOW)
    tables = everything(db)
    assert len(tables["sealed"]) == 3
    for name, rows in tables.items():
        for row in rows:
            for value in row:
                held_bytes = value if isinstance(value, bytes) else repr(value).encode()
                assert planted.encode() not in held_bytes, name
    [view] = db.read(views.read, [node_id])
    assert planted not in repr(view)
    assert planted not in repr(db.read(operations.timeline, node_id, 10))
    [current] = db.read(sealed.get, "bmc", bmc.bmc_id)
    assert vault.open(current, "bmc", binding).get_secret_value() == planted
