"""The metal state table and everything beside it, on SQLAlchemy Core.

Store functions are module-level, synchronous and plain: a connection first, then values. They call no BMC, no network and no clock. The
async shell runs each in one transaction through `Store.read` and `Store.write`.
"""
