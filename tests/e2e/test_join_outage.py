"""The database goes away and comes back while nodes are connected."""

from __future__ import annotations

import contextlib
import http.client
import time
from pathlib import Path

import pytest

from bcmetal_agent.wire import SECRETS_PATH
from e2e.test_joining import joined_agent, serving
from postgres_fixture import Cluster

pytestmark = pytest.mark.slow

PATIENCE_S = 20.0
OUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bcmetal'"


@pytest.mark.postgresql
def test_a_daemon_with_a_connected_node_outlives_an_outage_of_its_database(
    postgres_cluster: Cluster, tmp_path: Path
) -> None:
    url = postgres_cluster.database()
    name = url.partition("?")[0].rpartition("/")[2]
    log = tmp_path / "daemon.log"
    with contextlib.contextmanager(serving)(tmp_path, url) as running:
        files = joined_agent(running, tmp_path / "machine", running.token())
        context = running.trusting()
        context.load_cert_chain(files / "chain.pem", files / "key.pem")
        line = http.client.HTTPSConnection("127.0.0.1", running.node_port, context=context, timeout=10)
        with contextlib.closing(line):
            line.request("POST", SECRETS_PATH, "{}", {"Content-Type": "application/json"})
            assert line.getresponse().read()
            postgres_cluster.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            postgres_cluster.run(OUT)
            end = time.monotonic() + PATIENCE_S
            while "connections cannot be looked at" not in log.read_text(encoding="utf-8"):
                assert time.monotonic() < end, running.daemon.last_words()
                time.sleep(0.1)
            postgres_cluster.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            assert running.token()
            assert running.daemon.alive()
