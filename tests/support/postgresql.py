"""A real PostgreSQL for tests: `GATEWRIGHT_TEST_POSTGRESQL` names one, else a private one is started."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NoPostgresql(Exception):
    """There is none here; the text says why."""


def _program(name: str) -> str | None:
    places = os.pathsep.join(
        [os.environ.get("PATH", ""), *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    )
    return shutil.which(name, path=places)


@contextmanager
def server() -> Iterator[str]:
    """URL of an empty database on a server. Raises `NoPostgresql`."""
    if "GATEWRIGHT_TEST_POSTGRESQL" in os.environ:
        yield os.environ["GATEWRIGHT_TEST_POSTGRESQL"]
        return
    control, initdb = _program("pg_ctl"), _program("initdb")
    if not control or not initdb:
        raise NoPostgresql("no PostgreSQL here: set GATEWRIGHT_TEST_POSTGRESQL to the URL of an empty database")
    prefix: list[str] = []
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    if os.geteuid() == 0:  # the server refuses to run as root
        import pwd

        try:
            account = pwd.getpwnam("postgres")
        except KeyError:
            raise NoPostgresql("PostgreSQL does not run as root, and there is no account postgres") from None
        os.chown(folder, account.pw_uid, account.pw_gid)
        prefix = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    data = folder / "data"

    def quietly(*command: str) -> None:
        subprocess.run(
            [*prefix, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
        )

    quietly(initdb, "-D", str(data), "-U", "tester", "-A", "trust")
    options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=200"
    quietly(control, "-D", str(data), "-o", options, "-w", "start")
    try:
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        quietly(control, "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def emptied(url: str) -> str:
    """The same database with nothing in it."""
    from sqlalchemy import create_engine, text

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return url


def fresh(url: str, name: str) -> str:
    """A new, empty database on the same server."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{name}"'))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)
