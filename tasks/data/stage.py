"""The data stage: raw files to samples, row ledger and everything a person needs to trust them. Needs no torch."""

from __future__ import annotations

from specs.errors import InputError, ModelError
from specs.files import write_json
from specs.parameters import DataParameters
from specs.stages import Progress, StageContext, StageResult
from tasks.data.artifacts import write_artifacts
from tasks.data.preparing import prepare
from tasks.data.privacy import Masker, mask_intake
from tasks.data.reading import read_sources
from tasks.data.summary import notes, summarise
from tasks.prompts import PromptTemplate


def run(context: StageContext, progress: Progress) -> StageResult:
    """Read, align, deduplicate, split, measure and write. Raises `SourceError` or `InputError` for what is wrong."""
    if context.base_model is None:
        raise ModelError("the data stage needs the base model's tokenizer", "set base_model in project.yaml")
    parameters = DataParameters.model_validate(context.parameters)
    template = PromptTemplate.load(context.base_model)
    intake = read_sources(
        context.project_dir, context.spec, parameters, lambda text: len(template.encode("", text).input_ids), progress
    )
    masker = Masker(context.spec.language, context.spec.personal_data_allowed)
    if context.spec.personal_data == "mask":
        mask_intake(intake, masker)
    prepared = prepare(intake, parameters, context.spec.language, template, progress)
    if not prepared.samples:
        raise InputError(
            f"none of {len(prepared.fates)} rows became a sample", "check the column mapping in project.yaml"
        )
    progress.start("write artifacts")
    write_artifacts(context.artifacts, intake, prepared, masker.rows())
    summary = {**summarise(intake, prepared, template), "personal_data": masker.counts()}
    write_json(context.artifacts / "summary.json", summary)
    told = [*notes(intake, prepared, context.spec.language), *masker.notes(keep=context.spec.personal_data == "keep")]
    return StageResult(notes=told)
