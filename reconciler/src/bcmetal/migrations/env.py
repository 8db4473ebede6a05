"""Alembic's entry: runs the migrations on the connection that it is handed, in that connection's transaction."""

from alembic import context

from bcmetal.store.columns import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
