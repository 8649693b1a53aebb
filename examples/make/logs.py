"""Sensor logs of a spindle and of an axis, about one row a second, with the faults that real logs have."""

from __future__ import annotations

import datetime as dt
import math
import random
from pathlib import Path
from typing import Any

SPINDLE_ROWS, AXIS_ROWS = 2100, 1800
SPINDLE_EVENT, AXIS_EVENT = (1720, "ALM-0412"), (1310, "ALM-0431")
"""Row (from 0) and code of the fault event."""

GAP_ROW, GAP_S = 900, 240
DUPLICATE_ROW = 1405
JUMP_ROW, JUMP_S = 1000, -95
"""The gap and the doubled timestamp are in the spindle log; the clock of the axis log is set back once."""


def write_spindle_log(path: Path, seed: int) -> dict[str, Any]:
    """Spindle speed, load, bearing temperature and vibration; the temperature climbs to its alarm. Returns truth."""
    rng = random.Random(seed)
    time = dt.datetime(2025, 5, 12, 8, 0, 0)
    lines = ["timestamp,speed_rpm,load_pct,bearing_temp_c,vibration_mm_s,alarm"]
    for row in range(SPINDLE_ROWS):
        time += dt.timedelta(seconds=GAP_S if row == GAP_ROW else 0 if row == DUPLICATE_ROW else 1)
        cutting = (row // 150) % 3 != 2
        after_alarm = row > SPINDLE_EVENT[0]
        speed = 0.0 if after_alarm else (6000 if cutting else 1200) + rng.gauss(0, 8)
        load = 0.0 if after_alarm else (46 if cutting else 9) + rng.gauss(0, 3)
        worn = max(0, row - 1100) / (SPINDLE_EVENT[0] - 1100)
        heat = 41 + 5 * (1 - math.exp(-row / 400)) + (33 * min(worn, 1) ** 1.5 if not after_alarm else 31)
        shake = 0.1 if after_alarm else 1.1 + 2.8 * min(worn, 1) + abs(rng.gauss(0, 0.12))
        alarm = SPINDLE_EVENT[1] if row == SPINDLE_EVENT[0] else ""
        heat += rng.gauss(0, 0.2)
        lines.append(f"{time:%Y-%m-%d %H:%M:%S},{speed:.0f},{max(load, 0):.1f},{heat:.1f},{shake:.2f},{alarm}")
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return {
        "rows": SPINDLE_ROWS,
        "gaps": [{"after_row": GAP_ROW, "seconds": GAP_S}],
        "duplicated_timestamps": [DUPLICATE_ROW + 1],
        "clock_jumps": [],
        "events": [{"row": SPINDLE_EVENT[0] + 1, "code": SPINDLE_EVENT[1]}],
    }


def write_axis_log(path: Path, seed: int) -> dict[str, Any]:
    """Position, following error and motor current of the X axis; the way runs dry until the overload. Returns truth."""
    rng = random.Random(seed)
    time = dt.datetime(2025, 5, 13, 13, 30, 0)
    lines = ["timestamp,x_position_mm,following_error_um,motor_current_a,alarm"]
    for row in range(AXIS_ROWS):
        time += dt.timedelta(seconds=JUMP_S if row == JUMP_ROW else 1)
        dry = max(0, row - 700) / (AXIS_EVENT[0] - 700)
        stopped = row > AXIS_EVENT[0]
        position = 210.0 if stopped else 300 + 250 * math.sin(row / 40)
        error = 1.0 if stopped else 6 + 22 * min(dry, 1) + abs(rng.gauss(0, 1.5))
        current = 0.2 if stopped else 3.2 + 7.5 * min(dry, 1) + abs(rng.gauss(0, 0.3))
        alarm = AXIS_EVENT[1] if row == AXIS_EVENT[0] else ""
        lines.append(f"{time:%Y-%m-%d %H:%M:%S},{position:.2f},{error:.1f},{current:.2f},{alarm}")
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return {
        "rows": AXIS_ROWS,
        "gaps": [],
        "duplicated_timestamps": [],
        "clock_jumps": [{"after_row": JUMP_ROW, "seconds": JUMP_S}],
        "events": [{"row": AXIS_EVENT[0] + 1, "code": AXIS_EVENT[1]}],
    }
