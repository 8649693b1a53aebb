"""Opening the database: SQLite made durable, PostgreSQL by URL, migrations, and database errors in plain words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from flows.ledger import schema
from specs.errors import InputError, StorageError
from specs.files import storage_errors

BUSY_TIMEOUT_S = 60.0
_MIGRATION_LOCK = 7_045_115_117


def connect(url_or_path: str | Path) -> Engine:
    """An engine whose tables are at the newest version. Raises `InputError` for a URL, `StorageError` for a place."""
    url = _url(url_or_path)
    if url.get_backend_name() == "sqlite":
        if url.database and url.database != ":memory:":
            with storage_errors(Path(url.database)):
                Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        try:
            engine = create_engine(url, pool_pre_ping=True)
        except ModuleNotFoundError as error:
            raise InputError(
                f"the ledger {_shown(url)} needs a database driver: {error.name} is not installed",
                'install it with: pip install "gatewright[postgresql]"',
            ) from error
    with database_errors(engine):
        _migrate(engine)
    return engine


def _url(url_or_path: str | Path) -> URL:
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return URL.create("sqlite", database=str(url_or_path))
    try:
        url = make_url(url_or_path)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise InputError(
            "the ledger's URL cannot be read", "postgresql://user@host/database, or leave it out"
        ) from error
    if backend == "postgresql" and url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if backend not in ("sqlite", "postgresql"):
        raise InputError(f"a ledger cannot lie in {backend}", "use SQLite (the default) or postgresql://...")
    return url


def _shown(url: URL) -> str:
    """The URL without user and password."""
    return URL.create(url.drivername, host=url.host, port=url.port, database=url.database).render_as_string()


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # BEGIN is ours, so that a writer takes the lock before it reads
    cursor = connection.cursor()
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")  # the busy handler does not cover this switch
            break
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("gatewright_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes: all of it, or nothing."""
    options = {"gatewright_writes": True}
    with database_errors(engine), engine.execution_options(**options).begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that reads one consistent state."""
    with database_errors(engine), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def database_errors(engine: Engine) -> Iterator[None]:
    """Turn a full disk, a damaged file, or a server that cannot be reached into a `StorageError`."""
    try:
        yield
    except DBAPIError as error:
        cause = str(error.orig)
        place = engine.url.database if engine.dialect.name == "sqlite" else _shown(engine.url)
        if "disk is full" in cause:
            raise StorageError(
                f"no space left while writing the ledger {place}", "free some space, then `gatewright resume`"
            ) from error
        if "not a database" in cause or "malformed" in cause:
            raise StorageError(
                f"the ledger {place} is damaged: {cause}", "restore it from a backup; it is never repaired silently"
            ) from error
        if isinstance(error, OperationalError):
            raise StorageError(
                f"the ledger {place} cannot be used: {cause}", "check the place and try again"
            ) from error
        raise


def _migrate(engine: Engine) -> None:
    with reading(engine) as connection:
        version = _version(connection)
    if version == schema.HEAD:
        return
    if version is not None and version > schema.HEAD:
        raise StorageError(
            f"the ledger was written by a newer Gatewright (tables {version}, this version knows {schema.HEAD})",
            "use the newer version",
        )
    from alembic import command
    from alembic.config import Config

    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        if _version(connection) == schema.HEAD:  # another process was faster
            return
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(select(text("version_num")).select_from(text("alembic_version"))).scalar()
