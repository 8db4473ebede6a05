"""Alembic's migrations of the store, run by `bcmetal.store.migrate`."""
