"""What people read: the report of a stage, the page of a gate, the task sheet."""

from agents.gate_page import gate_page, sheet_html, sheet_page
from agents.stage_report import write_stage_report

__all__ = ["gate_page", "sheet_html", "sheet_page", "write_stage_report"]
