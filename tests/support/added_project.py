"""Two stages of a project's own for light runs: a command that counts, and work that a person hands in."""

from __future__ import annotations

COUNT = """
import json, os, sys
job = json.load(sys.stdin)
assert json.load(open(os.environ["GATEWRIGHT_JOB"])) == job
assert "GATEWRIGHT_TEST_PASSWORD" not in os.environ
text = open(job["inputs"]["text"]).read()
if job["do"] == "run":
    print(json.dumps({"start": "count", "total": 1}), flush=True)
    print(json.dumps({"say": "counted"}), flush=True)
    print("plain words go to the log", flush=True)
    print("[" * 60_000, flush=True)
    open(os.path.join(job["artifacts"], "count.txt"), "w").write(str(len(text) * job["parameters"]["times"]))
    open(os.path.join(job["artifacts"], "more.txt"), "w").write("nobody declared this")
    open("beside.txt", "w").write("written where the command stood")
    answer = {"metrics": {"guess": 7}, "notes": ["a note of its own"]}
else:
    answer = {"metrics": {"count": int(open(os.path.join(job["artifacts"], "count.txt")).read())}}
json.dump(answer, open(job["result"], "w"))
"""
HOLD = """
import time
run_dir = os.path.join(job["artifacts"], "..", "..", "..")
open(os.path.join(run_dir, "pid"), "w").write(str(os.getpid()))
if job["do"] == "run" and not os.path.exists(os.path.join(run_dir, "go")):
    time.sleep(600)
"""
STAGES = """
task_packages: [tests.support.added_tasks]
added_stages:
  count:
    inputs: {text: data/more.txt}
    command: [python, "project:count.py"]
    verify_command: [python, "project:count.py"]
    outputs: [count.txt]
    parameters: {times: {value: 2, min: 1, max: 3}}
    metrics: {count: {unit: characters}, guess: {unit: count, self_reported: true}}
    criteria: [{metric: count, op: ">", bound: 0}]
  look:
    inputs: {text: data/more.txt}
    hand_out: tests.support.added_tasks:sheet
    task: tests.support.added_tasks:take
    verify: tests.support.added_tasks:labels
    outputs: [labels.csv]
    metrics: {labelled: {unit: samples}}
    criteria: [{metric: labelled, op: ">=", bound: 1}]
"""
