"""Packages and plugin: what is installed in this environment."""

import importlib
import importlib.metadata as metadata
import os
from collections.abc import Iterator

from packaging.requirements import Requirement

from recipe_slca.doctor.checks import Outcome, Run, first_line

DISTRIBUTION = "recipe-slca"
PLUGIN_GROUP = "verl.plugins"
PLUGIN_MODULE = "recipe_slca.verl_plugin"
INSTALL = "install the project again in this environment: pip install -e '.[vllm]' (without a GPU: '.[cpu]')"


def check_versions(run: Run) -> Outcome:
    """The installed packages against the requirements of this project, those of the rollout backend included."""
    name = "versions"
    extra = "vllm" if run.config.actor_rollout_ref.rollout.name == "vllm" else "cpu"
    try:
        requirements = list(_requirements(DISTRIBUTION, {extra}))
    except metadata.PackageNotFoundError:
        return Outcome(name, False, f"{DISTRIBUTION} is not installed", INSTALL)
    wrong, pins = [], []
    for requirement in requirements:
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} is {found}, needed is {requirement.specifier}")
        elif str(requirement.specifier).startswith("=="):
            pins.append(f"{requirement.name} {found}")
    if wrong:
        return Outcome(name, False, "; ".join(wrong), INSTALL)
    return Outcome(name, True, ", ".join(dict.fromkeys(pins)))


def _requirements(distribution: str, extras: set[str]) -> Iterator[Requirement]:
    """What a distribution with these extras needs; the extras of a requirement are followed (verl[vllm])."""
    for text in metadata.requires(distribution) or []:
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in extras | {""}]
        if requirement.marker and not any(requirement.marker.evaluate(environment) for environment in environments):
            continue
        yield requirement
        if requirement.extras:
            inner = {extra: list(_requirements(requirement.name, {extra})) for extra in requirement.extras}
            base = {str(item) for item in _requirements(requirement.name, set())}
            yield from (item for items in inner.values() for item in items if str(item) not in base)


def check_plugin() -> Outcome:
    """Whether verl will load the plugin, and the error that verl would keep to itself."""
    name = "plugin"
    policy = os.getenv("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    points = [point for point in metadata.entry_points(group=PLUGIN_GROUP) if point.value == PLUGIN_MODULE]
    external = [module.strip() for module in os.getenv("VERL_USE_EXTERNAL_MODULES", "").split(",")]
    if PLUGIN_MODULE not in external:
        if not points:
            return Outcome(name, False, f"no entry point of {PLUGIN_GROUP} names {PLUGIN_MODULE}", INSTALL)
        if policy != "auto" and points[0].name not in policy.split(","):
            remedy = f"unset it, or add {points[0].name} to it"
            return Outcome(name, False, f"VERL_USE_EXTERNAL_PLUGINS={policy} keeps verl from loading it", remedy)
    try:
        importlib.import_module(PLUGIN_MODULE)
    except Exception as error:
        remedy = f"verl hides this error; repair it: python -c 'import {PLUGIN_MODULE}'"
        return Outcome(name, False, f"it cannot be imported: {first_line(error)}", remedy)
    return Outcome(name, True, f"{PLUGIN_MODULE} by {'VERL_USE_EXTERNAL_MODULES' if not points else 'entry point'}")
