"""Commands that pin and fetch what a study takes from the hub, size a study, complete and describe."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from searchlens.cli.options import Commands, cohort_of_folder, grid_of
from searchlens.cli.terminal import say
from searchlens.errors import InputError, counted
from searchlens.plan import pins
from searchlens.store import chat, snapshots, specials
from searchlens.store.checkpoints import fingerprint
from searchlens.store.files import file_sha256
from searchlens.store.specials import Specials


class Hub:
    """The hub itself, at ``HF_ENDPOINT``."""

    def resolve(self, source: pins.Source) -> pins.Pin:
        """Ask for the commit and its files; only small files, whose sha256 the hub does not keep, are downloaded."""
        from huggingface_hub import HfApi

        with _hub_errors(source):
            info: Any = HfApi().repo_info(
                source.repo, repo_type=source.kind, revision=source.revision, files_metadata=True
            )
            commit = pins.checked_commit(str(info.sha))
            entries = {entry.rfilename: entry for entry in info.siblings or ()}
            return pins.Pin(commit, {name: _file(source, commit, entries[name]) for name in source.in_use(entries)})

    def folder(self, source: pins.Source, pin: pins.Pin) -> Path:
        """Download what says the shape and the special tokens."""
        from huggingface_hub import hf_hub_download

        with _hub_errors(source):
            for name in filter(pin.files.get, (*specials.FILES, chat.FILE)):
                hf_hub_download(source.repo, name, revision=pin.commit, cache_dir=pins.cache_folder())
        return pins.snapshot(source, pin)

    def fetch(self, source: pins.Source, pin: pins.Pin) -> None:
        """Download missing files of a pinned source; InputError if the hub does not."""
        from huggingface_hub import snapshot_download

        with _hub_errors(source):
            snapshot_download(
                source.repo,
                repo_type=source.kind,
                revision=pin.commit,
                allow_patterns=list(pin.files),
                cache_dir=pins.cache_folder(),
            )


def _file(source: pins.Source, commit: str, entry: Any) -> pins.File:
    """Size and hash of a file: from the hub for large files, which state them, or else from the file itself."""
    if entry.lfs:
        return pins.File(entry.size, entry.lfs.sha256)
    from huggingface_hub import hf_hub_download

    where: dict[str, Any] = {"repo_type": source.kind, "revision": commit, "cache_dir": pins.cache_folder()}
    path = Path(hf_hub_download(source.repo, entry.rfilename, **where))
    return pins.File(path.stat().st_size, file_sha256(path))


@contextmanager
def _hub_errors(source: pins.Source) -> Iterator[None]:
    """Raise errors of the hub as ``InputError``, with a hint."""
    from huggingface_hub import errors

    unreachable = errors.HTTPError  # type: ignore[attr-defined] # of the HTTP library that is in use
    page = f"{'datasets/' if source.kind == 'dataset' else ''}{source.repo}"
    try:
        yield
    except errors.GatedRepoError:
        raise InputError(
            f"{source} is gated and this account has no access",
            f"accept its terms on its page ({page}), then `hf auth login` or set HF_TOKEN",
        ) from None
    except errors.RevisionNotFoundError:
        raise InputError(f"{source} has no revision {source.revision!r}", "check `revision`") from None
    except errors.RepositoryNotFoundError:
        raise InputError(f"{source} does not exist, or is private", "check the spelling, or `hf auth login`") from None
    except (unreachable, errors.OfflineModeIsEnabled, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{source}: the hub cannot be reached: {first}",
            "run this where the hub can be reached (and HF_HUB_OFFLINE is not set), or with --from-cache",
        ) from None


class Cache:
    """The hub cache of this machine: everything that any program has downloaded."""

    def resolve(self, source: pins.Source) -> pins.Pin:
        """Read the commit that the cache has for the revision, and hash its files."""
        repository = pins.cached_repository(source)
        reference = repository / "refs" / source.revision
        commit = reference.read_text().strip() if reference.is_file() else source.revision
        folder = repository / "snapshots" / commit
        if not pins.COMMIT.fullmatch(commit) or not folder.is_dir():
            raise InputError(
                f"{source} is not in the hub cache {pins.cache_folder()}",
                "download it, or set HF_HOME to the folder that has it",
            )
        names = source.in_use(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        files = {name: pins.File((folder / name).stat().st_size, file_sha256(folder / name)) for name in names}
        return pins.Pin(commit, files)

    def folder(self, source: pins.Source, pin: pins.Pin) -> Path:
        """The snapshot that the cache has."""
        if not (folder := pins.snapshot(source, pin)).is_dir():
            raise InputError(f"{source} at {pin.commit} is not in the hub cache", "pin it where the hub can be reached")
        return folder


def fetch(lock: pins.Lock, sources: Iterable[pins.Source], hash_of: Callable[[Path], str]) -> None:
    """Download missing files of pinned sources, compare every byte, and print a line for each; InputError if unlike."""
    for source in sources:
        pin = lock[source]
        folder = pins.snapshot(source, pin)
        if pins.missing_files(source, pin):
            Hub().fetch(source, pin)
        pins.check(source, pin, hash_of)
        say(f"{source}: {_describe(pin)}, as pinned, in {folder}")


def _describe(pin: pins.Pin) -> str:
    size = f"{pin.size / 1e9:,.1f} GB" if pin.size >= 1e9 else f"{pin.size / 1e6:,.1f} MB"
    return f"{counted(len(pin.files), 'file')}, {size}"


def pin(lock: pins.Lock, sources: Iterable[pins.Source], registry: Hub | Cache, *, update: bool = False) -> pins.Lock:
    """Pin sources that are not pinned yet, write the lock file, and print one line per source.

    ``update``: resolve again sources that are pinned already. Raises InputError if some could not be resolved; the
    message names them all, and the others are pinned.
    """
    new: dict[pins.Source, pins.Pin] = {}
    failed: list[InputError] = []
    for source in sources:
        old = lock.get(source)
        try:
            wanted = replace(source, revision=old.commit) if old and not update else source
            found = old if old and wanted != source else registry.resolve(wanted)
            if found is not old and source.kind != "dataset":  # what planning needs of its small files
                folder = registry.folder(source, found)
                template = chat.ChatTemplate.read(folder)
                chat_digest = template.digest if template else ""
                found = replace(found, shape=pins.shape_of(folder), specials=Specials.read(folder), chat=chat_digest)
        except InputError as error:
            failed.append(error)
            continue
        if found is old:
            say(f"{source}: {found.commit} (already pinned)")
            continue
        new[source] = found
        state = "new" if old is None else "unchanged" if old == found else f"was {old.commit}"
        say(f"{source}: {found.commit} ({state}; {_describe(found)})")
    changed = pins.Lock(lock.path, {**lock.pins, **{(source.kind, source.key): pin for source, pin in new.items()}})
    if new:
        changed.write()
    if failed:
        raise InputError("\n".join(error.message for error in failed), failed[0].hint)
    return changed


# ---- commands


def _power(args: argparse.Namespace) -> None:
    from searchlens.cli import sample_size

    components = sample_size.TYPICAL
    if args.folder:
        source = Path(args.folder)
        plan, options, _ = cohort_of_folder(args, source)
        contributions = sample_size.landscape_contributions(source, plan, options, *args.rows)
        components = sample_size.estimate_components(contributions)
    names = ("question_sd", "sample_sd", "model_sd", "shared")
    changes = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    design = sample_size.Design(tuple(args.questions), args.models, args.seeds)
    say(sample_size.report(design, replace(components, **changes), args.gap, args.alpha, args.contrasts))


def _pin(args: argparse.Namespace) -> None:
    grid = grid_of(args)
    registry = Cache() if args.from_cache else Hub()
    sources = grid.inputs.sources(everything=True)
    pin(grid.inputs.lock, sources, registry, update=args.update)
    if not sources:
        say("nothing to pin: the configuration names no checkpoint or dataset of the hub")


def _fetch(args: argparse.Namespace) -> None:
    grid = grid_of(args)
    hash_of = file_sha256 if args.rehash else pins.Hashes(grid.layout.hashes)
    fetch(grid.inputs.lock, grid.inputs.sources(), hash_of)


def _fingerprint(args: argparse.Namespace) -> None:
    say(fingerprint(Path(args.path)))


def _schema(_: argparse.Namespace) -> None:
    from searchlens.config import check

    print(check.schema_text(), end="")


def _snapshot(args: argparse.Namespace) -> None:
    say(snapshots.save(grid_of(args).config))


def _completion(args: argparse.Namespace) -> None:
    import shtab

    from searchlens.cli.main import parser

    every = parser()
    for action in (action for sub in (every, *every.commands.values()) for action in sub._actions):
        if action.metavar in ("DIR", "FOLDER", "RESULTS"):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar in ("FILE", "YAML", "JSON", "MANIFEST"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(every, args.shell))


def _preview(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.preview import preview

    grid = grid_of(args)
    shown = preview(grid)
    say(f"{grid.layout.report}, {grid.layout.explorer}: {', '.join(shown) or 'nothing is complete, or all is made'}")


def add_to(command: Commands) -> None:
    """Add the other tools."""
    command.group("tools")
    text = "write report and explorer of what is complete so far"
    command("preview", _preview, text, "-C mine")
    sub = command("pin", _pin, "write the lock file: commit and hashes of every name of the hub", "-C mine")
    sub.flag("--update", "look up again names that are pinned already")
    sub.flag("--from-cache", "read the hub cache of this machine instead of the hub")
    sub = command("fetch", _fetch, "download the pinned files, and compare every byte with the pins", "-C mine")
    sub.flag("--rehash", "hash all files, also those with a stored hash")
    sub = command("fingerprint", _fingerprint, "print the hash of a checkpoint", "models/base", is_configured=False)
    sub.add_argument("path", metavar="FOLDER", help="folder of a checkpoint")
    _add_power(command)
    sub = command("completion", _completion, "print what completes commands in a shell", "bash", is_configured=False)
    sub.add_argument("shell", choices=("bash", "zsh"), help="name of the shell")
    command("schema", _schema, "print the JSON schema of the configuration", "", is_configured=False)
    command("snapshot", _snapshot, "write the merged configuration into the results folder", "-C mine")


def _add_power(command: Commands) -> None:
    sub = command("sample-size", _power, "say how large a study must be", "--gap 1.5 --models 7 --questions 500 60")
    sub.text("folder", "FOLDER", "landscapes of a study (docs/power.md)", nargs="?")
    text = "difference of the mean errors of two ways to predict RL's curve, percentage points"
    sub.text("--gap", "X", text, type=float, required=True)
    sub.text("--models", "N", "number of models", type=int, required=True)
    sub.text("--questions", "N", "number of questions of each benchmark", type=int, nargs="+", required=True)
    sub.text("--seeds", "N", "pools of samples that curves are averaged over", type=int, default=1)
    sub.text("--alpha", "P", "level of the test", type=float, default=0.05)
    sub.text("--contrasts", "N", "number of contrasts tested together", type=int, default=1)
    text = "two ways to predict (docs/glossary.md), whose difference is estimated from the landscapes"
    sub.text("--rows", "ROW", text, nargs=2, default=["V3", "H4"])
    for name, text in (
        ("question-sd", "standard deviation over questions of their parts in the difference, percentage points"),
        ("sample-sd", "the same over pools of samples of one question"),
        ("model-sd", "the same over models of the difference itself"),
        ("shared", "share of the variance over questions that all models have in common, from 0 to 1"),
    ):
        sub.text(f"--{name}", "X", f"{text} (default: estimated from FOLDER, or typical)", type=float, default=None)
