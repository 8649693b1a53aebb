"""The sources of a project as `project.yaml` names them: their kind, where they lie, what their fields are called."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from specs.base import Strict
from specs.words import nearest

Encoding = Literal["auto", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "gb18030", "big5", "latin-1", "cp1252"]


class Source(Strict):
    """One kind of raw material: a file, a folder or a glob, relative to the project."""

    path: str = Field(min_length=1, description="file, folder or glob, relative to the project folder")
    encoding: Encoding = Field("auto", description="of text files; auto decides per file, and says what it decided")
    owner: str | None = Field(None, description="who answers for this material when its rows look wrong")

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if path.startswith(("/", "\\")) or ":" in path[:2] or ".." in path.replace("\\", "/").split("/"):
            raise ValueError(
                "must be relative to the project folder and stay inside it; copy the file into the project"
            )
        return path


GENERAL_TEXT_ENDINGS = (".txt", ".md", ".markdown")
"""Files that general text is read from."""


class GeneralText(Source):
    """Text that is not about the work of this project, on which forgetting is measured: loss before and after."""

    passages: int = Field(48, ge=8, le=4096, description="pieces that the loss is measured on, at most")
    tokens: int = Field(256, ge=32, le=32768, description="tokens of a piece at most")
    at_most: float = Field(0.1, ge=0, description="largest rise of the loss that passes, in nats per token")


WorkOrderField = Literal["device_model", "phenomenon", "steps", "repair", "fault_type", "date", "order_id"]
FaultCodeField = Literal["fault_type", "meaning", "cause", "remedy", "device_model"]


class WorkOrders(Source):
    """Maintenance work orders: CSV, TSV, XLSX, XLS, JSON, JSONL, Parquet, tables of a PDF.

    `columns` maps our fields to the headers of the file; nested keys of JSON have dotted headers, such as `en.text`.
    """

    kind: Literal["work_orders"]
    columns: dict[WorkOrderField, str] = Field(description="our field to the header in the file")
    sheet: str | None = Field(None, description="sheet of a workbook; null: every sheet that has these headers")
    device_model: str | None = Field(None, description="the machine of all rows, where no column names it")
    code_meaning: Literal["in_prompt", "left_out"] = Field(
        "in_prompt", description="what the fault-code table says of the code of an order: told in the prompt, or not"
    )

    @model_validator(mode="after")
    def _enough(self) -> WorkOrders:
        missing = [f for f in ("phenomenon", "repair") if f not in self.columns]
        if missing:
            raise ValueError(
                f"columns needs {' and '.join(missing)}, because a sample is a phenomenon and its repair; "
                f"add {missing[0]}: <header in the file>"
            )
        return self


class FaultCodes(Source):
    """A fault-code table: code, meaning, cause, remedy. The formats are those of work orders."""

    kind: Literal["fault_codes"]
    columns: dict[FaultCodeField, str] = Field(description="our field to the header in the file")
    sheet: str | None = Field(None, description="sheet of a workbook; null: every sheet that has these headers")
    device_model: str | None = Field(None, description="the machine of all rows, where no column names it")
    doubled_codes: Literal["quarantine", "error"] = Field(
        "quarantine", description="what happens when a code has two contents, and so is no key"
    )

    @model_validator(mode="after")
    def _enough(self) -> FaultCodes:
        missing = [f for f in ("fault_type", "meaning") if f not in self.columns]
        if missing:
            raise ValueError(f"columns needs {' and '.join(missing)}; add {missing[0]}: <header in the file>")
        return self


class WideLog(Strict):
    """A log without header and times, such as an export for Matlab: each row one cycle, each column one sample.

    The channel has the name of the file; rows of different files may have different numbers of samples.
    """

    seconds_per_row: float = Field(gt=0, description="length of a row in seconds")
    start: str = Field(
        "1970-01-01 00:00:00", description="time of the first row; the default counts from the beginning"
    )


class SensorLogs(Source):
    """Time series of a machine (CSV, TSV, TXT, Parquet): one time column, numeric channels, optional fault events."""

    kind: Literal["sensor_logs"]
    timestamp: str = Field("timestamp", description="header of the time column")
    channels: list[str] = Field(default_factory=list, description="empty: every other numeric column")
    event: str | None = Field(None, description="column that holds the fault code of an event, else empty")
    device_model: str | None = Field(None, description="the machine this log belongs to")
    time_zone: str | None = Field(None, description="IANA name; null: the project's")
    wide: WideLog | None = Field(None, description="the log has no header and no times")

    @field_validator("time_zone")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return None if value is None else known_time_zone(value)

    @model_validator(mode="after")
    def _either(self) -> SensorLogs:
        if self.wide and (self.channels or self.event):
            raise ValueError("wide logs have no columns to name; leave out channels and event")
        return self


class Manuals(Source):
    """Equipment manuals: PDF, DOCX, HTML, Markdown, TXT."""

    kind: Literal["manuals"]
    device_model: str | None = Field(None, description="the machine that these texts are about")
    ocr: bool = Field(False, description="recognise pages of a PDF that are only pictures; needs gatewright[ocr]")


class Notes(Source):
    """Technicians' notes: Markdown, TXT, DOCX, HTML."""

    kind: Literal["notes"]
    device_model: str | None = Field(None, description="the machine that these texts are about")


class Instructions(Source):
    """Existing instruction data: JSONL, JSON or Parquet with `messages`, Alpaca or ShareGPT records."""

    kind: Literal["instructions"]


AnySource = Annotated[
    WorkOrders | FaultCodes | SensorLogs | Manuals | Notes | Instructions, Field(discriminator="kind")
]


def known_time_zone(value: str) -> str:
    """Raises `ValueError` for a name that is not in the IANA database."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # a folder of the database, such as `Asia`
        near = nearest(value, available_timezones())
        raise ValueError(
            f"is not an IANA time zone; write {near[0] if near else 'a name such as Asia/Shanghai'}"
        ) from error
    return value
