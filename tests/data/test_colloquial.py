"""Phenomenon, steps and repair are found in what technicians write, in Chinese and English, and no word is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.colloquial import split_steps, structure

LISTS = {
    "1. Open cover 2. Check fuse 3. Close it": ["Open cover", "Check fuse", "Close it"],
    "1) lock out 2) drain oil": ["lock out", "drain oil"],
    "(1) lock out (2) drain oil": ["lock out", "drain oil"],
    "a) lock out b) drain": ["lock out", "drain"],
    "Step 1: lock out. Step 2: drain oil": ["lock out.", "drain oil"],
    "First, checked the fuse. Second, measured the motor. Finally, replaced the cable": [
        "checked the fuse.",
        "measured the motor",
        "replaced the cable",
    ],
    "first check the belt, then the motor and finally the drive": ["check the belt", "the motor", "the drive"],
    "Checked the fuse, then measured 24 V, after that swapped the relay": [
        "Checked the fuse",
        "measured 24 V",
        "swapped the relay",
    ],
    "1、断电2、拆盖3、更换": ["断电", "拆盖", "更换"],
    "1.检查电源2.更换保险丝3.重启": ["检查电源", "更换保险丝", "重启"],
    "（1）断电；（2）拆盖": ["断电", "拆盖"],
    "①断电②拆盖③更换": ["断电", "拆盖", "更换"],
    "第一，断电；第二，拆盖；第三，更换": ["断电", "拆盖", "更换"],
    "第一步断电，第二步拆盖": ["断电", "拆盖"],
    "一、断电 二、拆盖": ["断电", "拆盖"],
    "先断电，再拆盖，然后检查轴承，最后更换油封": ["断电", "拆盖", "检查轴承", "更换油封"],
    "首先断电，其次拆盖，最后更换": ["断电", "拆盖", "更换"],
    "1. Open cover: ①断电②拆盖 2. Close it": ["Open cover: ①断电②拆盖", "Close it"],
}
ONE_STEP = [
    "第一次启动报警，再次启动正常",
    "更换3号轴承，检查2、3轴",
    "Pressure is 1.5 bar and 2.5 A were found",
    "Checked first axis and second axis",
    "The 1) terminal is loose",
]


@pytest.mark.parametrize(("text", "steps"), LISTS.items())
def test_lists_and_connectives_of_every_common_form_give_their_items(text: str, steps: list[str]):
    assert list(split_steps(text)) == steps


@pytest.mark.parametrize("text", ONE_STEP)
def test_numbers_that_count_nothing_divide_nothing(text: str):
    assert list(split_steps(text)) == [text]


PLANTED = {
    "Spindle makes a grinding noise at 3000 rpm. Checked the belt tension, found it loose. Replaced the belt.": (
        "Spindle makes a grinding noise at 3000 rpm.",
        ["Checked the belt tension, found it loose."],
        "Replaced the belt.",
    ),
    "主轴3000转时有异响。检查皮带张力，发现松动。更换皮带后试运行一小时，正常。": (
        "主轴3000转时有异响。",
        ["检查皮带张力，发现松动。"],
        "更换皮带后试运行一小时，正常。",
    ),
    "机床报警SV0410，先检查编码器线，无异常，再测电机绝缘，发现对地短路，最后更换电机。": (
        "机床报警SV0410",
        ["检查编码器线，无异常", "测电机绝缘，发现对地短路"],
        "更换电机。",
    ),
    "液压站压力低，查看油位正常，拆开溢流阀发现阀芯卡滞，清洗后装回，压力恢复。": (
        "液压站压力低",
        ["查看油位正常", "拆开溢流阀发现阀芯卡滞"],
        "清洗后装回，压力恢复。",
    ),
    "Door will not lock. Cleaned the switch.": ("Door will not lock.", [], "Cleaned the switch."),
    "故障现象：Z轴抖动。检查：丝杠间隙大。处理：调整预紧。": ("Z轴抖动。", ["丝杠间隙大。"], "调整预紧。"),
    "Problem: no air pressure. Checked: compressor off. Fix: switched on compressor.": (
        "no air pressure.",
        ["compressor off."],
        "switched on compressor.",
    ),
    "The robot drops parts. First I checked vacuum: 40 kPa, too low. Then found a torn cup. Replaced all four.": (
        "The robot drops parts.",
        ["I checked vacuum: 40 kPa, too low", "found a torn cup."],
        "Replaced all four.",
    ),
    "卡盘夹不紧，首先检查液压压力，正常；其次检查卡爪，磨损严重；更换卡爪。": (
        "卡盘夹不紧",
        ["检查液压压力，正常", "检查卡爪，磨损严重"],
        "更换卡爪。",
    ),
    "X轴回零不准，测量开关信号正常，检查编码器发现接头进水，吹干处理后正常。": (
        "X轴回零不准",
        ["测量开关信号正常", "检查编码器发现接头进水"],
        "吹干处理后正常。",
    ),
}


@pytest.mark.parametrize(("text", "expected"), PLANTED.items())
def test_phenomenon_steps_and_repair_are_found(text: str, expected: tuple[str, list[str], str]):
    parts = structure(text)
    assert (parts.phenomenon, list(parts.steps), parts.repair) == expected


def test_a_text_without_a_repair_is_all_phenomenon():
    assert structure("油温偏高，等待备件。").repair == ""
    assert structure("Coolant smells bad, waiting for parts").phenomenon == "Coolant smells bad, waiting for parts"


CONNECTIVES = re.compile(
    r"然后再|然后|紧接着|接着|随后|之后|其次|最后再|最后|再|首先|先|(?:then|finally)\s|\W",
    re.IGNORECASE,
)
clause = st.sampled_from(
    [
        "主轴异响",
        "检查皮带，发现松动",
        "更换皮带",
        "测量电压正常",
        "Spindle is loud",
        "checked the fuse",
        "replaced relay K7",
    ]
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["", "先", "再", "然后", "then ", "finally "]), clause), min_size=1, max_size=6)
)
def test_no_word_is_lost_or_made_up(pieces: list[tuple[str, str]]):
    text = "，".join(f"{mark}{words}" for mark, words in pieces)
    parts = structure(text)
    said = "".join([parts.phenomenon, *parts.steps, parts.repair])
    assert CONNECTIVES.sub("", said) == CONNECTIVES.sub("", text)
