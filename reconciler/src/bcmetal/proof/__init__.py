"""Erasure records that prove themselves: signed when they are written, exported as files, verified offline by `openssl` alone.

A record is one JSON text (`document`), kept and exported byte for byte as it was signed. The key is ECDSA P-256 with SHA-256, since that
is what `openssl dgst -verify` of every release since 1.0 can do (Ed25519 takes `openssl pkeyutl -rawin`, which came with 3.0):

    openssl dgst -sha256 -verify keys/KEY.pem -signature records/RECORD.sig records/RECORD.json

It is a key for nothing else, made when it is first needed, sealed by the vault; `keys` makes and opens it, `signing` signs what a step
noted, `bundle` writes the files.
"""
