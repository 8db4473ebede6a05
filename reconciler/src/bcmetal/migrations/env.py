"""Alembic's entry: runs the migrations on the connection that it is handed, in that connection's transaction."""

from alembic import context

from bcmetal.store import join_tables  # its metadata holds every table

context.configure(
    connection=context.config.attributes["connection"], target_metadata=join_tables.metadata, transactional_ddl=True
)
context.run_migrations()
