"""Words that tell names of people from words of the workshop, in Chinese and English."""

from __future__ import annotations


def _listed(text: str) -> list[str]:
    return text.split()


SURE_SURNAMES = (
    "王李张刘陈杨赵吴徐孙朱胡郭罗梁宋郑谢韩唐冯董曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶潘杜戴汪姜范姚谭廖邹熊陆郝崔邱秦"
    "顾侯邵孟钱汤尹黎贺龚庞樊殷陶翟颜倪俞葛聂邢岳庄祁耿詹靳覃霍翁隋柯阮桂"
)
"""Surnames that seldom begin another word of a maintenance text."""
WIDE_SURNAMES = (
    SURE_SURNAMES + "黄周林何高马程夏钟田石白康毛江史龙万段雷易武乔文兰施洪严牛温季章鲁伍韦申毕柳齐梅莫谷舒任肖闫付余"
)
"""Also surnames that do begin other words (高压, 石油, 白班); used only where the words around leave no doubt."""
DOUBLE_SURNAMES = _listed("欧阳 司马 上官 诸葛 慕容 令狐 皇甫 尉迟 夏侯")

NO_NAMES = _listed(
    """
白班 车间 高级 高压 高速 高温 金工 程序 马达 任何 任务 任意 管理 许多 许可 顾客 顾问 范围 叶轮 叶片 张力 张紧
陆续 曾经 苏州 徐州 郑州 杨浦 唐山 沈阳 董事 石油 万用 万能 江苏 江西 龙门
康复 夏季 钟表 林业 田间 周期 周末 周一 周二 周三 周四 周五 周六 周日 黄油 黄色 白色 何时 何人 何处 何种 段长
施工 文员 文件 武汉 温度 温控 易损 易耗 毛刺 毛坯 石墨 余量 余料 付款 江南 洪水 严重 严禁 马上 程控
史上 齐全 高低 白天
"""
)
"""Words that begin with a surname and are no name."""
TITLES = _listed(
    """
师傅 工程师 经理 主任 厂长 班长 组长 队长 科长 主管 总工 技术员 技师 老师 先生 女士 小姐 总监 操作工 维修工 电工 钳工
"""
)
ROLE_TASKS = _listed(
    """
维修 检修 操作 报修 检查 点检 巡检 记录 负责 联系 经办 验收 值班 处理 填写 填报 填表 申报 上报 报告 审核 审批
确认 施工 安装 调试 保养 接单 派单 当班 交班 接班 作业 技术 执行 编制 批准
送修 反馈
"""
)
"""With 人, 员, 工 or 者 they name who did it: 维修员, 报修人."""
ROLES = _listed(
    """
维修工程师 值班工程师 现场工程师 电气工程师 机械工程师 售后工程师 设备工程师 工程师 班长 组长 主管 师傅
电工 钳工 机修工 机修 焊工 车工 铣工 操机员 操机 姓名 签名 签字
"""
)
VERBS = _listed(
    """
反映 反馈 报告 报修 检查 检修 发现 更换 处理 维修 修复 说 称 到场 确认 告知 通知 负责 调整 清洁 清理 完成 要求
拆 装 电话 联系 在 于 和 与 及 对 将 把
"""
)
"""What may follow a name directly."""

GIVEN_NAMES = _listed(
    """
james john robert michael william david richard joseph thomas charles christopher daniel matthew anthony donald
steven paul andrew joshua kenneth kevin brian george edward ronald timothy jason jeffrey jeff ryan jacob gary
nicholas eric jonathan stephen larry justin scott brandon benjamin ben samuel sam gregory greg alexander alex
patrick frank raymond dennis jerry tyler aaron jose adam nathan henry peter kyle walter ethan jeremy harold
keith christian roger noah gerald carl terry sean austin arthur lawrence jesse dylan bryan joe jordan billy
bruce albert willie gabriel logan alan juan wayne roy ralph randy eugene vincent russell louis bobby philip
johnny mary patricia jennifer linda elizabeth barbara susan jessica sarah karen lisa nancy betty margaret sandra
ashley kimberly emily donna michelle carol amanda dorothy melissa deborah stephanie rebecca sharon laura cynthia
kathleen amy angela shirley anna brenda pamela emma nicole helen samantha katherine christine debra rachel
carolyn janet maria heather diane ruth julie olivia joyce virginia mike tom dave bob jim steve chris tony dan ed
ken ron tim bill rob matt nick fred ted phil doug pete mohammed ahmed ali omar raj ravi sanjay amit wei ming
jane anne kate hans klaus stefan jürgen pierre jean luis carlos miguel ivan sergei yuki hiroshi kenji
"""
)
NO_ENGLISH_NAMES = frozenset(
    _listed(
        """
operator operators technician technicians maintenance engineering engineer production quality shift night day
vendor contractor oem plc hmi cnc nc team crew line supervisor manager management system alarm alarms control
controller machine machines vision sensor software hardware service supplier customer staff personnel operations
fanuc siemens haas mazak okuma heidenhain mitsubishi yaskawa abb kuka dobot bosch rexroth omron schneider monday
tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december the a an this that it he she they we you i and or but if when while after before
during because due no not none unknown check checked replace replaced repair repaired clean adjust reset inspect
test found noise leak leaking error errors fault door panel manual station mode console interface report room
desk side seat cab level training access action required note notes number id code screen display log mechanic
mechanics electrician electricians fitter fitters all both own another third first second last next new old
spare parts part spindle axis motor pump valve belt bearing coolant oil hydraulic hydraulics pneumatic
electrical mechanical remote local phone tel email automatic auto emergency safety security on off in at by to
for from with without of please see cleaning replacing adjusting changing hand hands means tightening resetting
"""
    )
)
"""Words that stand, with a capital, where a name could stand: roles, makers, days, parts, verbs."""
