"""Adds packages in the order in which they need each other, and leaves alone what is there."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mcp_perception_buffer.errors import InterfaceError, UnavailableError
from mcp_perception_buffer.interfaces import installed
from mcp_perception_buffer.interfaces.build import Workshop
from mcp_perception_buffer.interfaces.packages import Package, find_packages, read_package
from mcp_perception_buffer.interfaces.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console


def add(folders: Iterable[Path], console: Console) -> None:
    """Build the packages in the folders, unless they are there already, and say what was done.

    Packages that were added earlier and use one that has changed are built anew with it.

    Args:
        folders: each is a package, a `msg` folder, or holds packages.
        console: where it is said.

    Raises:
        InterfaceError: a folder or a definition is wrong.
        UnavailableError: something that they need or that the build needs is not there.
    """
    recipe = Recipe(installed.release())
    packages = find_packages(folders)
    for package in packages.values():
        if installed.belongs_to_ros(package.name):
            raise InterfaceError(
                f"{package.name} ({package.folder}) belongs to the ROS that is installed here, and "
                "is not replaced: leave it out"
            )
    with _alone():
        everything = {**_users_of(packages), **packages}
        _check_references(everything)
        levels = list(_levels(everything))
        versions = _versions(levels, recipe)
        before = {name: installed.added_version(name) for name in versions}
        changed = {name for name, version in versions.items() if version != before[name]}
        for name in sorted(packages.keys() - changed):
            _say(console, f"{name} is already there")
        steps = [[package for package in level if package.name in changed] for level in levels]
        if changed:
            _build([step for step in steps if step], versions, recipe, console)


def _versions(levels: list[list[Package]], recipe: Recipe) -> dict[str, str]:
    """Return the version that each package would have."""
    packages = [package for level in levels for package in level]
    used = {name for package in packages for name in package.needs}
    there = {name: version for name in used if (version := installed.added_version(name))}
    versions: dict[str, str] = {}
    for package in packages:
        versions[package.name] = recipe.version(package, there | versions)
    return versions


def _build(
    steps: list[list[Package]], versions: dict[str, str], recipe: Recipe, console: Console
) -> None:
    """Build packages; those of one step need nothing but what was built before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _progress("making ready to build", console):
            workshop = Workshop(folder, recipe.requirements)
        for step in steps:
            projects = [folder / package.name for package in step]
            for package, project in zip(step, projects, strict=True):
                recipe.write(package, versions[package.name], project)
            with _progress(f"building {', '.join(p.name for p in step)}", console):
                before = [installed.added_version(package.name) for package in step]
                workshop.install(workshop.build(projects))
            for package, old in zip(step, before, strict=True):
                done = f"{'replaced' if old else 'added'} {package.name}"
                _say(console, f"{done}: {', '.join(package.definitions)}")


def _users_of(packages: dict[str, Package]) -> dict[str, Package]:
    """Return those packages added earlier that use one of these, directly or not."""
    others = {
        name: read_package(installed.share(name))
        for name in installed.message_types()
        if name not in packages and installed.added_version(name)
    }
    users: dict[str, Package] = {}
    while more := {
        name: other
        for name, other in others.items()
        if name not in users and other.needs & {*packages, *users}
    }:
        users |= more
    return users


def _check_references(packages: dict[str, Package]) -> None:
    for package in packages.values():
        for reference in sorted(package.references):
            other, _, name = reference.partition("/msg/")
            if other in packages:
                there, known = True, name in packages[other].definitions
            else:
                there = installed.is_there(other)
                known = Path(installed.share(other), "msg", f"{name}.msg").is_file()
            if not there:
                raise UnavailableError(
                    f"{package.name} uses {other}, which is neither installed nor among the "
                    "folders: `interfaces add` its folder first, or name it as well. A package of "
                    f"ROS itself may have a wheel: uv pip install ros-{other.replace('_', '-')}"
                )
            if not known:
                raise InterfaceError(
                    f"{package.name} uses {other}/{name}, and the {other} that is "
                    f"{'named' if other in packages else 'installed'} here has no such message"
                )


def _levels(packages: dict[str, Package]) -> Iterator[list[Package]]:
    """Yield packages that need only what came before, as many at once as can be."""
    order = TopologicalSorter(
        {name: package.needs & packages.keys() for name, package in packages.items()}
    )
    try:
        order.prepare()
    except CycleError as error:
        names = " and ".join(sorted(set(error.args[1])))
        raise InterfaceError(f"{names} use each other, which no order can build") from error
    while ready := sorted(order.get_ready()):
        yield [packages[name] for name in ready]
        order.done(*ready)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep others from adding to this environment at the same time."""
    import fcntl  # not on Windows, which has no ROS wheels to get this far with

    path = Path(sys.prefix, ".mcp-perception-buffer.lock")
    try:
        file = path.open("w")
    except OSError as error:
        raise UnavailableError(f"{sys.prefix} cannot be written to: {error.strerror}") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _progress(what: str, console: Console) -> Iterator[None]:
    """Show for how long it has been going on; where nobody watches, say that it begins."""
    watched = console.is_terminal
    if not watched:
        _say(console, f"{what} …")
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not watched) as progress:
        progress.add_task(what, total=None)
        yield


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
