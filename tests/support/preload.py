"""Imported once by the fork server: the libraries of a training worker, out of the garbage collector's sight."""

from __future__ import annotations

import gc

import pyarrow.parquet  # noqa: F401

import tasks.models.folder
import tasks.training.session  # noqa: F401

gc.freeze()
