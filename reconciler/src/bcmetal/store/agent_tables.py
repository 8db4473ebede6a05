"""The tables of what runs on machines: boot tokens, the agents that came with them, their tasks and the logs of these."""

from __future__ import annotations

from sqlalchemy import BigInteger, Index, Integer, LargeBinary, Table
from sqlalchemy.schema import Column

from bcmetal.store.columns import (
    count,
    flag,
    ident,
    key,
    maybe_ident,
    maybe_moment,
    maybe_words,
    moment,
    words,
)
from bcmetal.store.columns import (
    metadata as metadata,
)

# The text of a token is sealed (owner: the operation), and only the newest one's.
boot_tokens = Table(
    "boot_tokens",
    metadata,
    key("operation_id"),
    Column("n", Integer, primary_key=True, autoincrement=False),
    ident("node_id"),
    Column("sha256", LargeBinary, nullable=False),
    flag("in_clear"),  # it crosses a wire on which others may read
    moment("created_at"),
    moment("expires_at"),
    maybe_moment("ended_at"),
    count("conflicts"),  # 1: a second key came with it
)
Index("boot_tokens_sha256", boot_tokens.c.sha256, unique=True)
Index("boot_tokens_node", boot_tokens.c.node_id)

# Whoever said hello with a boot token: the key that signs its calls from then on.
agents = Table(
    "agents",
    metadata,
    key("session_id"),
    ident("operation_id"),
    Column("token_n", Integer, nullable=False),
    ident("node_id"),
    Column("public_key", LargeBinary, nullable=False),  # Ed25519, 32 bytes
    words("identifiers"),  # JSON, as the machine said them
    words("version"),
    words("address"),
    moment("hello_at"),
    moment("seen_at"),
    count("sequence"),  # of its last call
    maybe_moment("ended_at"),
    flag("tpm_proven"),  # the machine's TPM, which is on record, opened a challenge for that key
)
Index("agents_token", agents.c.operation_id, agents.c.token_n, unique=True)
Index("agents_node", agents.c.node_id)

agent_tasks = Table(
    "agent_tasks",
    metadata,
    key("task_id"),
    ident("operation_id"),
    ident("node_id"),
    ident("name"),
    words("kind"),
    words("params"),  # JSON, without secrets
    maybe_words("file"),  # on the shelf: what the agent may fetch for it
    words("state", server_default="waiting"),  # waiting, handed, running, done, failed
    count("progress"),  # thousandths
    maybe_words("message"),
    maybe_words("result"),  # JSON
    maybe_words("error_code"),
    maybe_words("error_message"),
    count("log_read"),  # characters of its log that came from that agent so far, and that are kept of all
    count("log_kept"),
    moment("created_at"),
    maybe_moment("handed_at"),  # first
    maybe_ident("session_id"),  # of the agent that it was handed to last
    maybe_moment("reported_at"),
    maybe_moment("ended_at"),
)
Index("agent_tasks_name", agent_tasks.c.operation_id, agent_tasks.c.name, unique=True)
Index("agent_tasks_node", agent_tasks.c.node_id, agent_tasks.c.created_at)
_open = agent_tasks.c.ended_at.is_(None)
Index("agent_tasks_open", agent_tasks.c.operation_id, sqlite_where=_open, postgresql_where=_open)

op_logs = Table(
    "op_logs",
    metadata,
    key("operation_id"),
    key("stream"),  # the task's name
    Column("start", BigInteger, primary_key=True, autoincrement=False),  # in characters of what is kept
    words("text"),
    moment("at"),
)
