"""The proposer that asks a language model. Its answer is a suggestion: the guard checks it, the rules stand behind it.

The model starts from the rules' proposal and returns changes with reasons. An answer that cannot be read or that the
guard refuses goes back with the error, at most `spec.agent.max_attempts` times; then the rules' proposal stands, with
a warning. No exception of a provider leaves this module, and no secret.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from agents.citations import numbers_in, uncited
from agents.contract import MemoryFunction, Message, Outcome, ProposerContext, Transcript
from agents.feedback import unanswered
from agents.guard import Change, apply_changes, guard
from agents.llm_context import INSTRUCTIONS, prompt, redact, secrets, visible
from agents.rules import RulesProposer
from agents.task_sheet import with_consequences
from specs.errors import GuardRefused
from specs.events import FallbackTaken
from specs.project import Project
from specs.proposals import Proposal

_TIMEOUT_S = 120.0
_MAX_TOKENS = 4096
_MAX_REASON_CHARACTERS = 400


class SuggestedChange(BaseModel):
    """One parameter to change."""

    parameter: str = Field(description="dotted path of the parameter, such as training.lr")
    value: float | int | bool | str | None = Field(description="the new value")
    reason: str = Field(description="one sentence, resting on numbers that were given")


class Suggestion(BaseModel):
    """Changes to the baseline parameters, and the answer to the person's feedback."""

    changes: list[SuggestedChange] = Field(description="only what should differ from the baseline; may be empty")
    answers_feedback: str = Field("", description="how the feedback is answered; empty without feedback")


class AnswerError(Exception):
    """One answer that is no suggestion; the text goes back to the model. `said` is what came instead."""

    def __init__(self, problem: str, said: str) -> None:
        super().__init__(problem)
        self.said = said


class LlmProposer:
    """Asks the model that the spec names, through LangChain; falls back to the rules."""

    def __init__(
        self, spec: Project, memory: MemoryFunction | None = None, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.model = spec.agent.model or ""
        self.base_url = spec.agent.base_url
        self.max_attempts = spec.agent.max_attempts
        self.name = f"llm:{self.model}"
        self.rules = RulesProposer(memory)
        self.memory = memory
        self.wait = wait

    def propose(self, context: ProposerContext) -> Proposal:
        """The guarded proposal; raises `GuardRefused` only where the rules too find nothing inside the limits."""
        return self.consider(context).proposal

    def consider(self, context: ProposerContext) -> Outcome:
        """The proposal with the transcript, and the fallback where the rules had to stand in."""
        baseline = self.rules.propose(context)
        hidden = secrets()
        talk = [Message(role="system", content=INSTRUCTIONS), Message(role="user", content=prompt(context, baseline))]
        calls, failure = 0, ""
        try:
            ask = self._connect()
        except Exception as error:
            # a provider package that is missing, an unknown provider, a missing key: all end with the rules
            return self._fall_back(context, baseline, talk, 0, _shown(error, hidden))
        for attempt in range(self.max_attempts):
            calls += 1
            try:
                suggestion, said = ask(talk)
                talk.append(Message(role="assistant", content=redact(said, hidden) or "(nothing)"))
                proposal = self._accept(context, baseline, suggestion)
                return Outcome(proposal=proposal, transcript=self._transcript(talk, calls, "accepted"))
            except (AnswerError, GuardRefused) as error:
                failure = redact(str(error), hidden)
                if isinstance(error, AnswerError):
                    talk.append(Message(role="assistant", content=redact(error.said, hidden) or "(nothing)"))
                talk.append(Message(role="user", content=f"That answer cannot be used: {failure}. Answer again."))
            except Exception as error:
                # providers raise their own trees of transport errors; the type and status are all we keep
                failure = _shown(error, hidden)
                talk.append(Message(role="error", content=failure))
                if attempt + 1 < self.max_attempts:
                    self.wait(min(8.0, 0.5 * 2**attempt))
        return self._fall_back(context, baseline, talk, calls, failure)

    def _accept(self, context: ProposerContext, baseline: Proposal, suggestion: Suggestion) -> Proposal:
        """The baseline with the model's changes, if the guard lets it pass."""
        changes = [
            Change(change.parameter, change.value, _clean(change.reason), self.name) for change in suggestion.changes
        ]
        answer = _clean(suggestion.answers_feedback, 2000) if context.feedback.strip() else ""
        changed = apply_changes(baseline, changes)
        before = context.last_proposal.parameters if context.last_proposal else baseline.parameters
        if missing := unanswered(context.feedback, before, changed.parameters, answer):
            raise GuardRefused(
                f"the person's feedback is not answered: {'; '.join(missing)}", "say in answers_feedback what you did"
            )
        if changed.parameters == baseline.parameters:
            changed = baseline
        known = numbers_in(visible(context, baseline)) + numbers_in(changed.parameters)
        warnings = list(changed.warnings)
        for change in changes:
            if invented := uncited(change.reason, known):
                warnings.append(f"the reason for {change.key} names numbers nobody measured: {', '.join(invented)}")
        update = {"proposer": self.name, "warnings": warnings}
        if answer:
            update["answers_feedback"], update["answers"] = answer, []
        guarded = guard(changed.model_copy(update=update), context.spec, approved=context.approved, memory=self.memory)
        return guarded if changed is baseline else with_consequences(guarded, context, self.memory)

    def _connect(self) -> Callable[[list[Message]], tuple[Suggestion, str]]:
        from langchain.chat_models import init_chat_model
        from langsmith.run_helpers import tracing_context

        settings: dict[str, Any] = {"timeout": _TIMEOUT_S, "max_retries": 0, "max_tokens": _MAX_TOKENS}
        if self.base_url:
            settings["base_url"] = self.base_url
            if self.model.startswith("openai:") and not os.environ.get("OPENAI_API_KEY"):
                settings["api_key"] = "none"  # local servers take any key; the client insists on one
        model = init_chat_model(self.model, **settings)
        structured = model.with_structured_output(Suggestion, method="function_calling", include_raw=True)

        def ask(talk: list[Message]) -> tuple[Suggestion, str]:
            with tracing_context(enabled=False):  # nothing goes to a tracing service, whatever the environment says
                answer: Any = structured.invoke([(m.role, m.content) for m in talk if m.role != "error"])
            return _read(answer)

        return ask

    def _fall_back(
        self, context: ProposerContext, baseline: Proposal, talk: list[Message], calls: int, failure: str
    ) -> Outcome:
        what = f"{self.model} gave no usable proposal in {calls} calls"
        warning = f"{what}; the rules' proposal stands. Last error: {failure}"
        return Outcome(
            proposal=baseline.model_copy(update={"warnings": [*baseline.warnings, warning]}),
            transcript=self._transcript(talk, calls, "fell back to rules"),
            fallback=FallbackTaken(stage=context.gate, what=what, why=failure, instead="the rules' proposal"),
        )

    def _transcript(self, talk: list[Message], calls: int, outcome: str) -> Transcript:
        return Transcript(model=self.model, calls=calls, messages=talk, outcome=outcome)


def _read(answer: Any) -> tuple[Suggestion, str]:
    """The suggestion in an answer and its text; raises `AnswerError` with what was wrong.

    Providers return null for an answer without the call, and the parsing error beside it for a malformed one.
    """
    raw = answer["raw"]
    calls = [*(getattr(raw, "tool_calls", None) or []), *(getattr(raw, "invalid_tool_calls", None) or [])]
    said = str(raw.content or "") or "; ".join(str(call.get("args")) for call in calls)
    parsed, problem = answer["parsed"], answer["parsing_error"]
    if isinstance(parsed, Suggestion):
        return parsed, said
    if isinstance(problem, ValidationError):
        found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in problem.errors()[:5])
        raise AnswerError(f"it does not match the schema: {found}", said)
    reason = str((getattr(raw, "response_metadata", None) or {}).get("finish_reason", ""))
    cut = " (it was cut off)" if reason == "length" else ""
    raise AnswerError(f"it holds no complete call of Suggestion{cut}", said)


def _clean(text: str, limit: int = _MAX_REASON_CHARACTERS) -> str:
    """One line of printable text, cut to `limit` characters with a mark."""
    line = re.sub(r"\s+", " ", "".join(c if c.isprintable() or c.isspace() else " " for c in text)).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _shown(error: Exception, hidden: list[str]) -> str:
    """Type, status and first line of a provider's error, without secrets."""
    status = getattr(error, "status_code", None)
    first = (str(error).splitlines() or [""])[0][:200]
    return redact(f"{type(error).__name__}{f' {status}' if status else ''}: {first}", hidden)
