"""Words that say which number is meant: that of a part, an order or an alarm, or a reading, and none of a person. Pure.

Directly before a number every one of them speaks for it: `unit 87654321`, 压力87654321. Elsewhere in the clause, or in
the question that it answers, only words speak that name such a number and hardly anything else. An everyday word does
not: a phone number stands in `ring 87654321 about the machine` as well. So each list has two parts, `..._ANYWHERE` and
`..._IN_FRONT`; a word is in one of them. All are regular expressions, joined by `|`, those of English within `\\b`.
"""

from __future__ import annotations

IDENTIFIERS_ANYWHERE = (
    r"parts?|p/?n|serial|s/?n|model|order|ref(?:erence)?|drawing|dwg|item|sku|barcode|batch|lot|param(?:eter)?|alarm|error"
    r"|fault|code|version|program"
)
IDENTIFIERS_IN_FRONT = (
    r"ser|type|work\s?order|wo|stock|material|asset|prog|article|art|catalog(?:ue)?|cat|device|machine|unit"
)
"""Everyday words, and abbreviations that are words (`cat`, `art`). A `work order` has `order` in it elsewhere."""

CHINESE_IDENTIFIERS_ANYWHERE = (
    "料号|件号|物料|编号|序列|序号|机号|型号|图号|订单|工单|批号|批次|单号|参数|报警|代码|编码"
    "|版本|程序|设备号|条码|货号"
)
CHINESE_IDENTIFIERS_IN_FRONT = "资产|备件|零件|规格"
"""What is talked of without its number: 备件到了请打87654321."""

MEASURES_ANYWHERE = r"count(?:er)?|pulses?|offset|preset|reading|value|speeds?|rpm|resolution"
MEASURES_IN_FRONT = r"range|life|encoder|fuse|ratio|set(?:\s?to)?"

CHINESE_MEASURES_ANYWHERE = "读数|计数器?|脉冲数?|转速|电流|电压|设定值|分辨率|量程"
CHINESE_MEASURES_IN_FRONT = "压力|产量|里程|总数|数量"
