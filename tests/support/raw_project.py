"""A small messy project with all five source kinds, in English and Chinese, and a runner of the data stage."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet as pq

from specs.project import Project
from specs.stages import Quiet, StageContext, StageResult
from tasks.data.stage import run

_VOCABULARY = {
    "en": """
parts: belt | bearing | valve | encoder | pump | filter | relay | hose | fuse | clutch
signs: makes a grinding noise | leaks oil onto the floor | stops after warm up | vibrates at high speed |
   smells burnt | trips the breaker | loses its reference | moves in jerks | will not release |
   reads far too low | runs backwards | freezes in the middle of a cut | shows rust |
   sticks in the morning
places: on the left side | behind the door | under the table | near the tool changer |
   at the chip conveyor | inside the cabinet | below the spindle nose | close to the operator panel
checks: opened the cover and looked inside | measured the winding with a meter |
   pulled the connector apart | turned it by hand with power off | compared parameters with the backup |
   listened with a stethoscope | followed the cable to the terminal | watched the gauge during a cycle |
   asked the night shift about it | felt the temperature of the housing
repairs: Replaced the {} and tested ten cycles | Cleaned the {} with solvent |
   Tightened all screws of the {} | Swapped the {} for the one in stock |
   Adjusted the {} until the play was gone | Greased the {} and ran it in slowly |
   Rewired the {} with shielded cable | Reset the {} and saved the backup
""",
    "zh": """
parts: 皮带 | 轴承 | 阀门 | 编码器 | 油泵 | 滤芯 | 继电器 | 软管 | 保险丝 | 离合器
signs: 有摩擦异响 | 漏油到地面 | 热机后就停 | 高速时抖得厉害 | 闻到焦味 | 一动就跳闸 |
   丢失参考点 | 走走停停 | 松不开 | 读数偏低很多 | 转向反了 | 切到一半卡死 | 表面生锈 | 早上发涩
places: 左侧 | 防护门后面 | 工作台下 | 刀库旁边 | 排屑器附近 | 电柜里 | 主轴鼻端下方 |
   操作面板旁
checks: 打开护罩看里面 | 用万用表测绕组 | 拔下插头观察针脚 | 断电后用手盘动 | 把参数和备份对照 |
   用听针听声音 | 顺着电缆查到端子 | 加工时盯着压力表 | 问了夜班的同事 | 摸外壳温度
repairs: 更换{}并试运行十个循环 | 用溶剂清洗{} | 紧固{}的全部螺钉 | 把{}换成库存的那个 |
   调整{}直到没有间隙 | 给{}加注润滑脂并慢速磨合 | {}改用屏蔽线重新接线 | 复位{}并保存备份
""",
}


def _words(text: str) -> dict[str, list[str]]:
    """Lists of phrases by name; a line that ends in a bar goes on."""
    lines = text.strip().replace("|\n", "| ").split("\n")
    named = (line.partition(":")[::2] for line in lines)
    return {name.strip(): [p.strip() for p in phrases.split("|")] for name, phrases in named}


WORDS = {language: _words(text) for language, text in _VOCABULARY.items()}
HEADERS = {
    "en": {
        "device_model": "Machine",
        "phenomenon": "Problem",
        "steps": "Checks",
        "repair": "Repair",
        "fault_type": "Code",
    },
    "zh": {"device_model": "设备", "phenomenon": "故障现象", "steps": "检查", "repair": "维修", "fault_type": "代码"},
}
CODE_HEADERS = {
    "en": {"fault_type": "Code", "meaning": "Meaning", "cause": "Cause", "remedy": "Remedy"},
    "zh": {"fault_type": "代码", "meaning": "含义", "cause": "原因", "remedy": "处理"},
}


def code_of(number: int) -> str:
    return f"ALM-{number:04d}"


def orders(language: str) -> list[list[str]]:
    """Rows in the order of the header: 200 distinct ones, then planted ones (see the constants below)."""
    rng, words = random.Random(3), WORDS[language]
    rows = []
    for i in range(200):
        part, sign, place = rng.choice(words["parts"]), rng.sample(words["signs"], 2), rng.choice(words["places"])
        checks, repair = rng.sample(words["checks"], 2), rng.choice(words["repairs"]).format(rng.choice(words["parts"]))
        if language == "en":
            text = (f"The {part} {place} {sign[0]} and {sign[1]}", f"1) {checks[0]} 2) {checks[1]}", repair)
        else:
            text = (f"{place}的{part}{sign[0]}，而且{sign[1]}", f"先{checks[0]}，再{checks[1]}", repair)
        rows.append([f"VMC-{850 + i % 3}", *text, code_of(i % 12)])
    near = list(rows[NEAR_OF - 1])
    near[1] = near[1] + (" again" if language == "en" else "了")
    variants = [[*rows[VARIANTS_OF - 1][:4], code_of(n)] for n in (20, 21, 22)]
    damaged = ["VMC-850", rows[0][1] + "\ufffd\ufffd", "", rows[0][3], code_of(1)]
    no_problem = ["VMC-850", "", "", rows[0][3], code_of(1)]
    no_repair = ["VMC-850", rows[0][1], "", "-", code_of(1)]
    return [*rows, list(rows[EXACT_OF - 1]), near, *variants, no_problem, no_repair, damaged]


EXACT_OF, NEAR_OF, VARIANTS_OF = 4, 6, 8
EXACT_ROW, NEAR_ROW, VARIANT_ROWS, QUARANTINED_ROWS = 201, 202, (203, 204, 205), (206, 207, 208)
"""1-based numbers of originals, and of what was planted after the 200 distinct rows."""


def write_csv(path: Path, header: list[str], rows: list[list[str]], encoding: str = "utf-8") -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    path.write_bytes(text.getvalue().encode(encoding, errors="strict"))


def write_xlsx(path: Path, header: list[str], rows: list[list[str]]) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Orders"
    sheet.append(["Maintenance work orders 2024"])
    sheet.merge_cells(start_row=1, start_column=1, end_row=1, end_column=len(header))
    sheet.append([*header[:2], "Work done", "", *header[4:]])
    sheet.append(["", "", *header[2:4], ""])
    sheet.merge_cells(start_row=2, start_column=3, end_row=2, end_column=4)
    for column in (1, 2, 5):
        sheet.merge_cells(start_row=2, start_column=column, end_row=3, end_column=column)
    for row in rows:
        sheet.append(row)
    book.save(path)


def sensor_rows(fault_at: int) -> list[list[str]]:
    """One reading a second for 20 minutes with a hole of 2 minutes, and one fault event."""
    rows = []
    for second in [*range(600), *range(720, 1320)]:
        stamp = f"2024-05-06 {8 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        event = code_of(2) if second == fault_at else ""
        rows.append([stamp, f"{50 + second * 0.01:.2f}", f"{(second * 37) % 11:.1f}", event])
    return rows


MANUAL = {
    "en": "# Manual\n\n"
    + "\n\n".join(
        f"## {n} Section about the {part}\n\n"
        + " ".join(
            f"The {part} of unit {n} must be checked every {h} hours. Clean it with a dry cloth and look for cracks."
            for h in range(10, 70, 10)
        )
        + f"\n\n- Use tool {n}\n- Wear gloves"
        for n, part in enumerate(WORDS["en"]["parts"], start=1)
    ),
    "zh": "# 说明书\n\n"
    + "\n\n".join(
        f"## {n} 关于{part}\n\n"
        + "".join(f"每运行{h}小时检查第{n}组的{part}。用干布清洁并观察有无裂纹。" for h in range(10, 70, 10))
        + f"\n\n- 使用{n}号工具\n- 佩戴手套"
        for n, part in enumerate(WORDS["zh"]["parts"], start=1)
    ),
}
NOTES = {
    "en": "# Notes\n\n## Monday\n\nVMC-850 spindle was hot. Checked the grease, found it dry. Replaced the bearing.\n\n"
    "## Tuesday\n\nRemember to order gloves for the whole team.\n",
    "zh": "# 笔记\n\n## 周一\n\n"
    "VMC-850主轴很烫。检查润滑脂，发现已干。更换轴承。\n\n## 周二\n\n记得给大家订购手套和抹布。\n",
}


def _code_row(n: int, language: str) -> list[str]:
    words = WORDS[language]
    meaning = f"{words['places'][n % 8]} {words['parts'][n % 10]} {words['signs'][n % 14]}"
    remedy = words["repairs"][n % 8].format(words["parts"][n * 3 % 10])
    return [code_of(n), meaning, words["signs"][(n * 5 + 2) % 14], remedy]


def make_project(folder: Path, language: str) -> Project:
    """Write the raw files and give the spec."""
    raw = folder / "raw"
    raw.mkdir(parents=True)
    headers, code_headers = HEADERS[language], CODE_HEADERS[language]
    rows = orders(language)
    if language == "en":
        write_xlsx(raw / "orders.xlsx", list(headers.values()), rows)
    else:
        write_csv(raw / "orders.csv", list(headers.values()), rows, "gb18030")
    codes = [_code_row(n, language) for n in range(30)]
    write_csv(raw / "codes.csv", list(code_headers.values()), codes)
    log = "timestamp,load,current,event\n" + "\n".join(",".join(row) for row in sensor_rows(1000))
    (raw / "spindle.csv.gz").write_bytes(gzip.compress(log.encode(), mtime=0))
    (raw / "manual.md").write_text(MANUAL[language], encoding="utf-8")
    (raw / "notes.md").write_text(NOTES[language], encoding="utf-8")
    orders_file = "raw/orders.xlsx" if language == "en" else "raw/orders.csv"
    return Project.model_validate(
        {
            "project": "small",
            "language": language,
            "base_model": "tiny",
            "sources": [
                {"kind": "manuals", "path": "raw/manual.md"},
                {"kind": "work_orders", "path": orders_file, "columns": headers},
                {"kind": "fault_codes", "path": "raw/codes.csv", "columns": code_headers},
                {"kind": "sensor_logs", "path": "raw/*.csv.gz", "event": "event", "device_model": "VMC-850"},
                {"kind": "notes", "path": "raw/notes.md"},
            ],
        }
    )


def run_stage(folder: Path, spec: Project, model: Path, out: Path, **parameters: Any) -> StageResult:
    """Run the data stage of the project in `folder` into `out`."""
    return run(stage_context(folder, spec, model, out, **parameters), Quiet())


def stage_context(folder: Path, spec: Project, model: Path, out: Path, **parameters: Any) -> StageContext:
    """What the flow would hand to the stage."""
    return StageContext(
        run="r",
        stage="data",
        attempt=1,
        project_dir=folder,
        spec=spec,
        parameters=parameters,
        inputs={},
        base_model=model,
        base_model_sha256="0" * 64,
        out_dir=out,
        checkpoints_dir=out / "checkpoints",
    )


@dataclass(frozen=True)
class Finished:
    """A finished run of the data stage: the project's folder, its spec, the attempt's folder and its context."""

    folder: Path
    spec: Project
    out: Path
    context: StageContext
    result: StageResult
    language: str

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a Parquet artifact."""
        return pq.read_table(self.out / "artifacts" / f"{name}.parquet").to_pylist()

    def fates(self, source: str) -> dict[int, dict[str, Any]]:
        """Ledger rows of a source by the number at the end of their location."""
        rows = self.table("row_ledger")
        return {int(r["location"].rpartition("#")[2]): r for r in rows if r["source"].startswith(source)}

    def json(self, name: str) -> Any:
        """A JSON artifact."""
        return json.loads((self.out / "artifacts" / name).read_bytes())


def finish(folder: Path, language: str, model: Path, **parameters: Any) -> Finished:
    """Write the project, run the stage."""
    spec = make_project(folder, language)
    context = stage_context(folder, spec, model, folder / "out", **parameters)
    return Finished(folder, spec, folder / "out", context, run(context, Quiet()), language)
