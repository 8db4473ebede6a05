"""Routes to the accounts of a Redfish BMC and their rules. With `account_slots` they are fixed, as on iDRACs; else a POST makes them."""

from __future__ import annotations

from typing import Any, Final

from pydantic import SecretStr

from bcmetal_drivers.emulated.accounts import Account
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.messages import Answer, Refusal, Request, not_found, refusal
from bcmetal_drivers.emulated.outlet_routes import change_directory, directories_shown

SERVICE: Final = f"{ROOT}/AccountService"
ACCOUNTS: Final = f"{SERVICE}/Accounts"
ROLES: Final = ("Administrator", "Operator", "ReadOnly")
NO_ROLE: Final = "None"  # of an empty slot
POLICY: Final = {  # property -> the setting of this BMC that it shows and changes
    "MinPasswordLength": "password_shortest",
    "MaxPasswordLength": "password_longest",
    "AccountLockoutThreshold": "lock_after",
    "AccountLockoutDuration": "lock_s",
    "PasswordExpirationDays": "password_days",
}


def show_service(inside: Interior, call: Call) -> Answer:
    rules = {name: int(getattr(inside.quirks, setting) or 0) for name, setting in POLICY.items()}
    return resource(
        SERVICE,
        "AccountService.v1_15_0",
        "Account Service",
        ServiceEnabled=True,
        Accounts=link(ACCOUNTS),
        Roles=link(f"{SERVICE}/Roles"),
        **directories_shown(inside.outlets),
        **rules,
    )


def change_service(inside: Interior, call: Call) -> Answer:
    """All of it or nothing."""
    given = call.request.json()
    wanted = {name: value for name, value in given.items() if name not in inside.outlets.directories}
    for name, value in wanted.items():
        if name not in POLICY or not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10**6:
            raise Refusal(400, "PropertyValueNotInList", f"{name} cannot be set to {value!r}.")
    for name in given.keys() - wanted.keys():
        change_directory(inside.outlets, name, given[name])
    for name, value in wanted.items():
        inside.quirks.set(POLICY[name], value or None if POLICY[name] in ("lock_after", "password_days") else value)
    return show_service(inside, call)


def list_roles(inside: Interior, call: Call) -> Answer:
    return collection(f"{SERVICE}/Roles", "Role", [f"{SERVICE}/Roles/{role}" for role in ROLES])


def show_role(inside: Interior, call: Call, role: str) -> Answer:
    if role not in ROLES:
        raise not_found(f"{SERVICE}/Roles/{role}")
    return resource(f"{SERVICE}/Roles/{role}", "Role.v1_3_1", role, RoleId=role, IsPredefined=True)


def list_accounts(inside: Interior, call: Call) -> Answer:
    fixed = [str(n) for n in range(1, inside.quirks.account_slots + 1)]
    return collection(ACCOUNTS, "ManagerAccount", [f"{ACCOUNTS}/{n}" for n in fixed or inside.accounts.slots])


def show_account(inside: Interior, call: Call, slot: str) -> Answer:
    account = _in_slot(inside, slot)
    return resource(
        f"{ACCOUNTS}/{slot}",
        "ManagerAccount.v1_12_0",
        "User Account",
        UserName=account.username,
        Password=None,
        RoleId=account.role,
        Enabled=account.enabled,
        Locked=inside.accounts.locked(account.username),
        PasswordChangeRequired=account.must_change,
        PasswordExpiration=account.expires,
        Keys=link(f"{ACCOUNTS}/{slot}/Keys"),
        Links={"Role": link(f"{SERVICE}/Roles/{account.role}")},
    )


def list_keys(inside: Interior, call: Call, slot: str) -> Answer:
    path = f"{ACCOUNTS}/{slot}/Keys"
    return collection(path, "Key", [f"{path}/{n}" for n, _ in enumerate(_in_slot(inside, slot).keys, 1)])


def show_key(inside: Interior, call: Call, slot: str, n: str) -> Answer:
    keys = _in_slot(inside, slot).keys
    if not 1 <= int(n) <= len(keys):
        raise not_found(call.request.path)
    return resource(f"{ACCOUNTS}/{slot}/Keys/{n}", "Key.v1_3_0", "Key", KeyType="SSH", KeyString=keys[int(n) - 1])


def create_account(inside: Interior, call: Call) -> Answer:
    if inside.quirks.account_slots:
        raise Refusal(405, "OperationNotAllowed", "Accounts are fixed slots here.")
    wanted = call.request.json()
    missing = {"UserName", "Password", "RoleId"} - wanted.keys()
    if missing:
        raise Refusal(400, "PropertyMissing", f"{', '.join(sorted(missing))} must be given.")
    slot = next(str(n) for n in range(1, 100) if str(n) not in inside.accounts.slots)
    made = Account(slot, "", SecretStr(""), NO_ROLE)
    _write(inside, made, wanted, None)
    inside.accounts.slots[slot] = made
    answer = show_account(inside, call, slot)
    return Answer(201, answer.doc, {"Location": f"{ACCOUNTS}/{slot}"})


def change_account(inside: Interior, call: Call, slot: str) -> Answer:
    """A new password ends the account's other sessions, as many BMCs do."""
    account = _in_slot(inside, slot)
    _write(inside, account, call.request.json(), call.token)
    if account.username:
        inside.accounts.slots[slot] = account
    else:
        inside.accounts.slots.pop(slot, None)
    return show_account(inside, call, slot)


def remove_account(inside: Interior, call: Call, slot: str) -> Answer:
    account = _in_slot(inside, slot)
    if inside.quirks.account_slots:
        raise Refusal(405, "OperationNotAllowed", "Accounts are fixed slots here.")
    del inside.accounts.slots[slot]
    inside.sessions.close_all(account.username)
    return Answer(204)


def _write(inside: Interior, account: Account, wanted: dict[str, Any], token: str | None) -> None:
    """All of it or nothing."""
    unknown = wanted.keys() - {"UserName", "Password", "RoleId", "Enabled"}
    if unknown or not wanted:
        raise Refusal(400, "PropertyNotWritable", f"Cannot be written: {', '.join(sorted(unknown)) or 'nothing'}.")
    name, password, role = wanted.get("UserName"), wanted.get("Password"), wanted.get("RoleId")
    if name is not None and (not isinstance(name, str) or inside.accounts.named(name or " ") not in (None, account)):
        raise Refusal(400, "ResourceAlreadyExists", "There is an account of this name.")
    if role is not None and role not in ROLES:
        raise Refusal(400, "PropertyValueNotInList", f"There is no role {role!r}.")
    shortest, longest = inside.quirks.password_shortest, inside.quirks.password_longest
    if "Password" in wanted and (not isinstance(password, str) or not shortest <= len(password) <= longest):
        raise Refusal(400, "PropertyValueFormatError", f"A password has {shortest} to {longest} characters.")
    account.enabled = bool(wanted.get("Enabled", account.enabled))
    account.role = role or account.role
    if name is not None:
        account.username, account.role = name, account.role if name else NO_ROLE
    if isinstance(password, str):
        account.password, account.must_change = SecretStr(password), False
        inside.sessions.close_all(account.username, but=token)
        inside.password_changed(account.username, account.password)


def _in_slot(inside: Interior, slot: str) -> Account:
    """An empty one has no name."""
    account = inside.accounts.slots.get(slot)
    if account is not None:
        return account
    if slot.isdigit() and 1 <= int(slot) <= inside.quirks.account_slots:
        return Account(slot, "", SecretStr(""), NO_ROLE, enabled=False)
    raise not_found(f"{ACCOUNTS}/{slot}")


# ---------------------------------------------------------------- a password that must be changed first


def change_first(account: Account) -> Answer:
    """What is said to a login that is good for a new password only (Base registry, PasswordChangeRequired)."""
    path = f"{ACCOUNTS}/{account.slot}"
    message = (
        f"The password provided for this account must be changed before access is granted. PATCH Password of {path}."
    )
    answer = refusal(403, "PasswordChangeRequired", message)
    answer.doc["error"]["@Message.ExtendedInfo"][0]["MessageArgs"] = [path]
    return answer


def check_change_first(account: Account | None, request: Request) -> None:
    """Raises Refusal for all but the own account and the end of the session, while the password must be changed."""
    if account is None or not account.must_change or request.path == f"{ACCOUNTS}/{account.slot}":
        return
    if not (request.method == "DELETE" and request.path.startswith(f"{ROOT}/SessionService/")):
        said = Refusal(403, "", "")
        said.answer = change_first(account)
        raise said


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", r"/AccountService", show_service),
    ("PATCH", r"/AccountService", change_service),
    ("GET", r"/AccountService/Roles", list_roles),
    ("GET", r"/AccountService/Roles/([^/]+)", show_role),
    ("GET", r"/AccountService/Accounts", list_accounts),
    ("POST", r"/AccountService/Accounts", create_account),
    ("GET", r"/AccountService/Accounts/([^/]+)", show_account),
    ("GET", r"/AccountService/Accounts/([^/]+)/Keys", list_keys),
    ("GET", r"/AccountService/Accounts/([^/]+)/Keys/([0-9]+)", show_key),
    ("PATCH", r"/AccountService/Accounts/([^/]+)", change_account),
    ("DELETE", r"/AccountService/Accounts/([^/]+)", remove_account),
)
