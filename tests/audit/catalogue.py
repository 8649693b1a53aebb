"""The catalogue of manipulations: each with the part and the check that must find it."""

from __future__ import annotations

import shutil

from flows.gatefiles import gate_folder
from tests.audit.manipulations import (
    Manipulation,
    append_bytes,
    decision,
    double,
    end_first,
    forge_body,
    forge_evidence,
    forge_evidence_and_chain,
    link,
    payload,
    rebuilt,
    rebuilt_at,
    relink,
    relink_folder,
    reorder,
    swap,
    touch_body,
    truncate,
    twice,
    widen_policy,
    widen_policy_and_chain,
    without,
)

HASHES = ("integrity", "each event's stored bytes hash to its recorded hash")
LINKS = ("integrity", "each event names the hash of the one before")
COLUMNS = ("integrity", "the columns of each event repeat its hashed bytes")
READS = ("integrity", "each event reads as its kind")
TABLES = ("integrity", "the tables beside the chain repeat it")
FROZEN = ("integrity", "spec, policy and environment are those the run began with")
DOCUMENTS = ("integrity", "evidence and reports are those that were published")
ARTIFACTS = ("integrity", "artifacts are those the evidence lists")
UNLISTED = ("integrity", "no file lies among the artifacts that nobody listed")
VERDICTS = ("integrity", "verdicts follow from the metrics in the evidence")
INPUTS = ("integrity", "inputs did not change while a stage ran")
SHOWN = ("integrity", "what each gate showed is unchanged")
OWN = ("integrity", "each gate showed this run's own evidence, proposal, spec and policy")
PROPOSALS = ("integrity", "proposals, edits and transcripts are unchanged")
RELEASED = ("integrity", "released files are those the manifest lists")
MANIFEST = ("integrity", "the release manifest is the one that was published")
GAPS = ("completeness", "events are numbered from 1 without a gap")
BEGINS = ("completeness", "the run begins once, with its first event")
ROW = ("completeness", "the run's row agrees with its events")
TERMINAL = ("completeness", "a run that ended has its terminal record, last")
ATTEMPTS = ("completeness", "every attempt that began has an end, and every published one its verdicts")
FOLDERS = ("completeness", "folders of attempts and events name each other")
GATES = ("completeness", "every gate that opened was decided, except the one that waits")
WHOLE = ("completeness", "a finished run went through every stage")
POLICY = ("authority", "the policy is the one that the run began with")
NAMED = ("authority", "each decision names a gate that was open, with the digest of what it showed")
ONCE = ("authority", "each gate and round was decided once")
ALLOWED = ("authority", "each decision was allowed by the policy")
SIGNED = ("authority", "each signature is by a key of its person, over exactly what was decided")
BLOCKED = ("authority", "each gate said truly whether a blocking criterion had failed, and what its sheet leaves open")
ORDER = ("authority", "nothing ran, was released or ended without its decision")

CATALOGUE: dict[str, tuple[Manipulation, tuple[str, str]]] = {
    # rows of the database, chain left as it is
    "an event's bytes changed": (lambda t: touch_body(t, "proposal.made", payload(proposer="llm")), HASHES),
    "an event's bytes and hash changed": (lambda t: forge_body(t, "proposal.made", payload(proposer="llm")), LINKS),
    "an event's bytes replaced by noise": (
        lambda t: t.sql("UPDATE events SET body = ? WHERE sequence = 5", b"\x00noise"),
        HASHES,
    ),
    "an event's bytes replaced by a text": (
        lambda t: t.sql("UPDATE events SET body = replace(body, 'demo', 'dema') WHERE sequence = 1"),
        HASHES,
    ),
    "an event's bytes replaced by a number": (lambda t: t.sql("UPDATE events SET body = 7 WHERE sequence = 5"), HASHES),
    "an event's number made a word": (lambda t: t.sql("UPDATE events SET sequence = 'x' WHERE sequence = 5"), GAPS),
    "an event's actor made a number": (lambda t: t.sql("UPDATE events SET actor = 7 WHERE sequence = 5"), COLUMNS),
    "a gate's round made a word": (lambda t: t.sql("UPDATE gates SET round = 'x' WHERE gate = 'data'"), TABLES),
    "a decision's row added": (
        lambda t: t.sql(
            "INSERT INTO decisions SELECT run, gate, 9, digest, choice, actor, at, sequence FROM decisions LIMIT 1"
        ),
        TABLES,
    ),
    "a gate's row removed": (lambda t: t.sql("DELETE FROM gates WHERE gate = 'train'"), TABLES),
    "every event gone": (lambda t: t.sql("DELETE FROM events"), GAPS),
    "two events' bytes swapped": (
        lambda t: t.statements(
            ("UPDATE events SET sequence = 99999 WHERE sequence = 5", ()),
            ("UPDATE events SET sequence = 5 WHERE sequence = 6", ()),
            ("UPDATE events SET sequence = 6 WHERE sequence = 99999", ()),
        ),
        LINKS,
    ),
    "the run's count raised": (lambda t: t.sql("UPDATE runs SET sequence = sequence + 1"), ROW),
    "an event dropped": (lambda t: t.sql("DELETE FROM events WHERE sequence = 7"), GAPS),
    "the first event dropped": (lambda t: t.sql("DELETE FROM events WHERE sequence = 1"), BEGINS),
    "the tail cut": (lambda t: truncate(t, rows_too=False), ROW),
    "an event copied to the end": (
        lambda t: t.sql(
            "INSERT INTO events SELECT run, (SELECT max(sequence) + 1 FROM events), kind, actor, at, body, hash "
            "FROM events WHERE kind = 'decision.recorded' ORDER BY sequence LIMIT 1"
        ),
        LINKS,
    ),
    "a column's actor changed": (
        lambda t: t.sql("UPDATE events SET actor = 'you' WHERE kind = 'decision.recorded'"),
        COLUMNS,
    ),
    "a column's time changed": (lambda t: t.sql("UPDATE events SET at = '2020-01-01T00:00:00.000000Z'"), COLUMNS),
    "a column's kind changed": (
        lambda t: t.sql("UPDATE events SET kind = 'run.stopped' WHERE kind = 'attempt.failed'"),
        COLUMNS,
    ),
    "a decision's row changed": (lambda t: t.sql("UPDATE decisions SET actor = 'intruder'"), TABLES),
    "a decision's row removed": (lambda t: t.sql("DELETE FROM decisions WHERE gate = 'train'"), TABLES),
    "a gate's row changed": (lambda t: t.sql("UPDATE gates SET digest = ?", "b" * 64), TABLES),
    "the run's state changed": (lambda t: t.sql("UPDATE runs SET state = 'rejected'"), ROW),
    "the run's head changed": (lambda t: t.sql("UPDATE runs SET head = ?", "b" * 64), ROW),
    "the run moved to another project": (lambda t: t.sql("UPDATE runs SET project = 'other'"), ROW),
    # files
    "the policy widened": (widen_policy, FROZEN),
    "the policy gone": (lambda t: (t.run_dir / "policy.json").unlink(), POLICY),
    "the spec changed": (lambda t: append_bytes(t.run_dir / "spec.json"), FROZEN),
    "the environment changed": (lambda t: append_bytes(t.run_dir / "environment.json"), FROZEN),
    "a metric in the evidence changed": (forge_evidence, DOCUMENTS),
    "evidence gone": (lambda t: (t.attempt("data") / "evidence.json").unlink(), DOCUMENTS),
    "a report changed": (lambda t: append_bytes(t.attempt("train", 2) / "report.md"), DOCUMENTS),
    "evidence of another attempt": (
        lambda t: shutil.copy(t.attempt("data") / "evidence.json", t.attempt("train", 2) / "evidence.json"),
        DOCUMENTS,
    ),
    "an artifact changed": (lambda t: append_bytes(t.attempt("data") / "artifacts" / "result.txt"), ARTIFACTS),
    "an artifact gone": (lambda t: (t.attempt("data") / "artifacts" / "more.txt").unlink(), ARTIFACTS),
    "two artifacts swapped": (
        lambda t: swap(t.attempt("data") / "artifacts" / "more.txt", t.attempt("data") / "artifacts" / "result.txt"),
        ARTIFACTS,
    ),
    "artifacts of two stages swapped": (
        lambda t: swap(t.attempt("data") / "artifacts" / "more.txt", t.attempt("dry_run") / "artifacts" / "more.txt"),
        ARTIFACTS,
    ),
    "an artifact replaced by a link": (link, ARTIFACTS),
    "a file added among the artifacts": (
        lambda t: (t.attempt("data") / "artifacts" / "new.txt").write_text("x"),
        UNLISTED,
    ),
    "a file added in a new folder among the artifacts": (
        lambda t: shutil.copytree(t.attempt("data") / "plots", t.attempt("data") / "artifacts" / "deep"),
        UNLISTED,
    ),
    "a plot added": (lambda t: (t.attempt("data") / "plots" / "new.svg").write_text("<svg/>"), UNLISTED),
    "a plot changed": (lambda t: append_bytes(t.attempt("data") / "plots" / "loss.svg"), SHOWN),
    "gate.json changed": (lambda t: append_bytes(gate_folder(t.run_dir, "train", 1) / "gate.json"), SHOWN),
    "gate.json gone": (lambda t: (gate_folder(t.run_dir, "train", 2) / "gate.json").unlink(), SHOWN),
    "gate.json of another round": (
        lambda t: swap(
            gate_folder(t.run_dir, "train", 1) / "gate.json", gate_folder(t.run_dir, "train", 2) / "gate.json"
        ),
        SHOWN,
    ),
    "every proposal changed": (
        lambda t: [append_bytes(p) for p in sorted((t.run_dir / "proposals").iterdir())],
        PROPOSALS,
    ),
    "a released file changed": (lambda t: append_bytes(t.run_dir / "release" / "weights.bin"), RELEASED),
    "a released file gone": (lambda t: (t.run_dir / "release" / "weights.bin").unlink(), RELEASED),
    "a released file added": (lambda t: (t.run_dir / "release" / "extra.py").write_text("x"), RELEASED),
    "an attempt's proposal changed": (
        lambda t: (t.attempt("data") / "proposal.json").write_bytes(
            next(iter(sorted((t.run_dir / "proposals").iterdir()))).read_bytes().replace(b'"seed"', b'"sead"')
        ),
        DOCUMENTS,
    ),
    "an attempt's gate of another gate": (
        lambda t: shutil.copy(gate_folder(t.run_dir, "train", 2) / "gate.json", t.attempt("data") / "gate.json"),
        DOCUMENTS,
    ),
    "the reports of two stages swapped": (
        lambda t: swap(t.attempt("data") / "report.md", t.attempt("train", 2) / "report.md"),
        DOCUMENTS,
    ),
    "the evidence of two stages swapped": (
        lambda t: swap(t.attempt("data") / "evidence.json", t.attempt("dry_run") / "evidence.json"),
        DOCUMENTS,
    ),
    "a hidden file added among the artifacts": (
        lambda t: (t.attempt("data") / "artifacts" / ".hidden").write_text("x"),
        UNLISTED,
    ),
    "a dangling link added among the artifacts": (
        lambda t: (t.attempt("data") / "artifacts" / "link").symlink_to("/nowhere"),
        UNLISTED,
    ),
    "gate.json made a link": (
        lambda t: relink(gate_folder(t.run_dir, "train", 1) / "gate.json"),
        SHOWN,
    ),
    "the artifacts' folder made a link": (lambda t: relink_folder(t.attempt("data") / "artifacts"), ARTIFACTS),
    "an attempt's folder made a link": (lambda t: relink_folder(t.attempt("data")), DOCUMENTS),
    "an attempt's folder renumbered": (
        lambda t: t.attempt("dry_run").rename(t.attempt("dry_run", 7)),
        FOLDERS,
    ),
    "the release manifest changed": (lambda t: append_bytes(t.run_dir / "release" / "manifest.json"), MANIFEST),
    "an attempt's folder gone": (lambda t: shutil.rmtree(t.attempt("dry_run")), FOLDERS),
    "an attempt's folder added": (lambda t: shutil.copytree(t.attempt("data"), t.attempt("data", 2)), FOLDERS),
    "a gate's folder added": (
        lambda t: shutil.copytree(gate_folder(t.run_dir, "train", 2), gate_folder(t.run_dir, "train", 3)),
        GATES,
    ),
    # the chain built anew, with everything beside it
    "rebuilt: a decision by somebody else": (rebuilt("decision.recorded", decision(actor="intruder")), ALLOWED),
    "rebuilt: a decision by the agent": (rebuilt("decision.recorded", decision(actor="agent")), ALLOWED),
    "rebuilt: a homoglyph of an approver": (rebuilt("decision.recorded", decision(actor="m\u0435")), ALLOWED),
    "rebuilt: recorded by one, decided by another": (
        rebuilt("decision.recorded", lambda b: b.update(actor="you")),
        ALLOWED,
    ),
    "rebuilt: an unauthenticated decision without solo": (
        rebuilt("decision.recorded", decision(authentication="unauthenticated")),
        ALLOWED,
    ),
    "rebuilt: an override taken out": (rebuilt("decision.recorded", decision(override=False), index=-2), ALLOWED),
    "rebuilt: an override by who may not": (rebuilt("decision.recorded", decision(actor="you"), index=-2), ALLOWED),
    "rebuilt: self-approval hidden": (rebuilt("decision.recorded", decision(self_approved=True)), ALLOWED),
    "rebuilt: a decision on another digest": (rebuilt("decision.recorded", decision(digest="b" * 64)), NAMED),
    "rebuilt: a decision of another run": (rebuilt("decision.recorded", decision(run="r0")), NAMED),
    "rebuilt: a decision before its gate": (reorder, NAMED),
    "rebuilt: a decision replayed": (double, ONCE),
    "rebuilt: a decision left out": (without("decision.recorded"), ORDER),
    "rebuilt: a gate left out": (without("gate.opened"), ORDER),
    "rebuilt: a rework made an approval": (
        rebuilt("decision.recorded", decision(choice="approve"), index=3),
        ORDER,
    ),
    "rebuilt: a reject at the end": (rebuilt("decision.recorded", decision(choice="reject"), index=-1), ORDER),
    "rebuilt: other parameters ran": (rebuilt("attempt.reserved", payload(parameters="b" * 64)), ORDER),
    "rebuilt: a failure left out": (without("attempt.failed"), ORDER),
    "rebuilt: a reservation left out": (without("attempt.reserved"), ATTEMPTS),
    "rebuilt: verdicts left out": (without("verdicts.recorded"), ATTEMPTS),
    "rebuilt: a publication left out": (without("attempt.published"), FOLDERS),
    "rebuilt: the release left out": (without("release.published"), WHOLE),
    "rebuilt: the end left out": (without("run.finished"), TERMINAL),
    "rebuilt: a failed criterion made to pass": (
        rebuilt(
            "verdicts.recorded",
            lambda b: b["payload"]["verdicts"][0].update(passed=True),
            index=-2,
        ),
        VERDICTS,
    ),
    "rebuilt: a gate's warning taken off": (rebuilt("gate.opened", payload(blocked=False), index=-2), BLOCKED),
    "rebuilt: evidence changed together with its event": (forge_evidence_and_chain, VERDICTS),
    "rebuilt: another proposal under the gate": (rebuilt("proposal.made", payload(proposal="b" * 64)), OWN),
    "rebuilt: inputs after differ": (
        rebuilt("inputs.hashed", payload(inputs={"raw:orders.csv": "b" * 64}), index=1),
        INPUTS,
    ),
    "rebuilt: edits changed": (
        rebuilt("decision.recorded", decision(edits={"training.lr": 0.9}), index=2),
        PROPOSALS,
    ),
    "rebuilt: an event of a stage that leads elsewhere": (
        rebuilt("attempt.failed", payload(stage="../../elsewhere")),
        READS,
    ),
    "rebuilt: a decision moved to another gate": (
        rebuilt("decision.recorded", decision(gate="release"), index=0),
        NAMED,
    ),
    "rebuilt: a decision moved to another round": (rebuilt("decision.recorded", decision(round=9)), NAMED),
    "rebuilt: the approver's name in capitals": (rebuilt("decision.recorded", decision(actor="Me")), ALLOWED),
    "rebuilt: the approver's name with a space": (rebuilt("decision.recorded", decision(actor="me ")), ALLOWED),
    "rebuilt: the approver's name with something unseen": (
        rebuilt("decision.recorded", decision(actor="me\u200b")),
        ALLOWED,
    ),
    "rebuilt: the approver's name in fullwidth letters": (
        rebuilt("decision.recorded", decision(actor="\uff4d\uff45")),
        ALLOWED,
    ),
    "rebuilt: a rework without its reason": (
        rebuilt("decision.recorded", decision(comment=""), index=3),
        ALLOWED,
    ),
    "rebuilt: an override without its reason": (rebuilt("decision.recorded", decision(comment=""), index=-2), ALLOWED),
    "rebuilt: a signature claimed": (
        rebuilt("decision.recorded", decision(authentication="ssh_signature")),
        SIGNED,
    ),
    "rebuilt: another policy": (rebuilt("run.created", payload(policy="b" * 64)), POLICY),
    "rebuilt: another spec": (rebuilt("run.created", payload(spec="b" * 64)), FROZEN),
    "rebuilt: another beginning": (without("run.created"), BEGINS),
    "rebuilt: the policy widened with its event": (widen_policy_and_chain, OWN),
    "rebuilt: a gate opened on another digest": (rebuilt("gate.opened", payload(digest="b" * 64)), SHOWN),
    "rebuilt: another manifest": (rebuilt("release.published", payload(manifest="b" * 64)), MANIFEST),
    "rebuilt: other evidence": (rebuilt("attempt.published", payload(evidence="b" * 64)), DOCUMENTS),
    "rebuilt: another report": (rebuilt("attempt.published", payload(report="b" * 64)), DOCUMENTS),
    "rebuilt: a stage published that never ran": (
        rebuilt("attempt.published", payload(attempt=9)),
        ATTEMPTS,
    ),
    "rebuilt: an end before the release": (end_first, TERMINAL),
    "rebuilt: a second beginning": (twice("run.created"), BEGINS),
    "rebuilt: an event of no kind": (rebuilt("attempt.failed", lambda b: b["payload"].pop("error")), READS),
    "rebuilt: a time that is none": (rebuilt_at("yesterday"), READS),
    "rebuilt: a release from elsewhere": (rebuilt("release.published", payload(folder="../../other")), MANIFEST),
}
