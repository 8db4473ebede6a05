"""An operator's own certificate authority, made by OpenSSL as its manuals show."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
ISSUER: Final = (
    "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
)
NODES: Final = ISSUER + "extendedKeyUsage=clientAuth,serverAuth\n"
CONSTRAINED: Final = NODES + (  # as docs/certificate-authority.md recommends
    "nameConstraints = critical,@no_hosts\n[no_hosts]\nexcluded;DNS.0 =\n"
    "excluded;IP.0 = 0.0.0.0/0.0.0.0\nexcluded;IP.1 = 0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0\n"
)
SERVERS: Final = ISSUER + "extendedKeyUsage=serverAuth\n"
KINDS: Final = ("node", "node-tenant", "server")


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], capture_output=True, timeout=60, check=True)


def make(
    folder: Path,
    name: str,
    extensions: str,
    *,
    subject: str,
    signer: str | None = None,
    days: int = 300,
    key: tuple[str, ...] = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
) -> None:
    """`name`.pem and `name`.key, signed by the `signer` of that name, or by itself."""
    request, words = folder / f"{name}.csr", folder / f"{name}.ext"
    words.write_text(extensions)
    openssl(
        "req",
        "-new",
        "-newkey",
        *key,
        "-nodes",
        "-keyout",
        str(folder / f"{name}.key"),
        "-subj",
        subject,
        "-out",
        str(request),
    )
    (folder / f"{name}.key").chmod(0o600)
    by: tuple[str, ...] = ("-signkey", str(folder / f"{name}.key"))
    if signer is not None:
        by = ("-CA", str(folder / f"{signer}.pem"), "-CAkey", str(folder / f"{signer}.key"), "-CAcreateserial")
    place = str(folder / f"{name}.pem")
    openssl("x509", "-req", "-in", str(request), *by, "-days", str(days), "-extfile", str(words), "-out", place)


def make_all(folder: Path) -> Path:
    """A root and its three issuers."""
    folder.mkdir(parents=True, exist_ok=True)
    make(folder, "root", ROOT, subject="/O=Example/CN=root")
    for kind in KINDS:
        extensions = SERVERS if kind == "server" else NODES
        make(folder, kind, extensions, subject=f"/O=Example/OU=bcmetal {kind}/CN={kind}", signer="root")
    return folder
