"""Releases for whoever gets one: release verify, release sign. Neither needs the project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from flows.cli.app import app
from flows.cli.auditing import Signers, public_key, say_steps
from flows.cli.options import AsJson
from flows.cli.output import emit, guarded, say
from specs.errors import EXIT_DONE, EXIT_VERIFICATION

release = typer.Typer(help="A released folder: verify it, sign it.", no_args_is_help=True)
app.add_typer(release, name="release")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release: runs/RUN/release, or a copy.")]


@release.command("verify")
@guarded
def verify_release(
    folder: Folder,
    signer: Signers = None,
    envelope: Annotated[
        Optional[Path],  # noqa: UP045  typer reads this at run time
        typer.Option("--envelope", help="A signed envelope kept elsewhere. Default: in the folder, or beside it."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Whether a release is what its manifest, attestation and evidence say, and who signed it; needs nothing else."""
    from flows.audit.release import verify_release_folder

    found = verify_release_folder(folder, [public_key(text) for text in signer or ()], envelope)
    if as_json:
        emit(found.model_dump(mode="json"))
    else:
        say_steps(found.steps)
        say("verified" if found.ok else "NOT verified")
    return EXIT_DONE if found.ok else EXIT_VERIFICATION


@release.command("sign")
@guarded
def sign_release(
    folder: Folder,
    key: Annotated[Path, typer.Option("--key", help="A private SSH key, or the .pub file of one in the agent.")],
    as_json: AsJson = False,
) -> int:
    """Sign the attestation of a release; the envelope is written beside the folder, which stays as it is."""
    from flows.audit.release import sign_release

    target = sign_release(folder, key)
    if as_json:
        emit({"envelope": str(target)})
    else:
        say(f"wrote {target}")
    return EXIT_DONE
