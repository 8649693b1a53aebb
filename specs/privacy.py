"""Personal data: its kinds, and the placeholders that stand for it in samples. Shared by the stage and its verifier."""

from __future__ import annotations

from typing import Literal

from specs.base import Language

PersonalKind = Literal["phone", "id_number", "bank_card", "email", "plate", "account", "name"]

PLACEHOLDERS: dict[PersonalKind, dict[Language, str]] = {
    "phone": {"en": "[PHONE]", "zh": "[电话]"},
    "id_number": {"en": "[ID NUMBER]", "zh": "[证件号]"},
    "bank_card": {"en": "[CARD NUMBER]", "zh": "[卡号]"},
    "email": {"en": "[EMAIL]", "zh": "[邮箱]"},
    "plate": {"en": "[PLATE]", "zh": "[车牌]"},
    "account": {"en": "[ACCOUNT]", "zh": "[账号]"},
    "name": {"en": "[NAME]", "zh": "[姓名]"},
}
"""What stands for personal data, in the language of the project. No digits: a placeholder is never a code."""

KIND_TITLES: dict[PersonalKind, dict[Language, str]] = {
    "phone": {"en": "phone numbers", "zh": "电话号码"},
    "id_number": {"en": "ID numbers", "zh": "证件号码"},
    "bank_card": {"en": "bank cards", "zh": "银行卡号"},
    "email": {"en": "e-mail addresses", "zh": "电子邮箱"},
    "plate": {"en": "licence plates", "zh": "车牌号"},
    "account": {"en": "messenger accounts", "zh": "微信和 QQ 号"},
    "name": {"en": "names", "zh": "姓名"},
}
KINDS: tuple[PersonalKind, ...] = tuple(PLACEHOLDERS)
