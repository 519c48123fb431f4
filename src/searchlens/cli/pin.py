"""`searchlens pin` and `searchlens fetch`: ask the hub what names stand for, and download what was pinned.

A lock file contains only answers of the hub, or of its cache on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from searchlens.cli.terminal import say
from searchlens.errors import InputError
from searchlens.plan.pins import (
    COMMIT,
    File,
    Lock,
    Pin,
    Source,
    cache_folder,
    cached_repository,
    check,
    checked_commit,
    missing_files,
    shape_of,
    snapshot,
)
from searchlens.store import chat, specials
from searchlens.store.files import file_sha256
from searchlens.store.specials import Specials


class Hub:
    """The hub itself, at ``HF_ENDPOINT``."""

    def resolve(self, source: Source) -> Pin:
        """Ask for the commit and its files; only small files, whose sha256 the hub does not keep, are downloaded."""
        from huggingface_hub import HfApi

        with _hub_errors(source):
            info: Any = HfApi().repo_info(
                source.repo, repo_type=source.kind, revision=source.revision, files_metadata=True
            )
            commit = checked_commit(str(info.sha))
            entries = {entry.rfilename: entry for entry in info.siblings or ()}
            return Pin(commit, {name: _file(source, commit, entries[name]) for name in source.in_use(entries)})

    def folder(self, source: Source, pin: Pin) -> Path:
        """Download what says the shape and the special tokens."""
        from huggingface_hub import hf_hub_download

        with _hub_errors(source):
            for name in filter(pin.files.get, (*specials.FILES, chat.FILE)):
                hf_hub_download(source.repo, name, revision=pin.commit, cache_dir=cache_folder())
        return snapshot(source, pin)

    def fetch(self, source: Source, pin: Pin) -> None:
        """Download missing files of a pinned source; InputError if the hub does not."""
        from huggingface_hub import snapshot_download

        with _hub_errors(source):
            snapshot_download(
                source.repo,
                repo_type=source.kind,
                revision=pin.commit,
                allow_patterns=list(pin.files),
                cache_dir=cache_folder(),
            )


def _file(source: Source, commit: str, entry: Any) -> File:
    """Size and hash of a file: from the hub for large files, which state them, or else from the file itself."""
    if entry.lfs:
        return File(entry.size, entry.lfs.sha256)
    from huggingface_hub import hf_hub_download

    path = Path(
        hf_hub_download(source.repo, entry.rfilename, repo_type=source.kind, revision=commit, cache_dir=cache_folder())
    )
    return File(path.stat().st_size, file_sha256(path))


@contextmanager
def _hub_errors(source: Source) -> Iterator[None]:
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

    def resolve(self, source: Source) -> Pin:
        """Read the commit that the cache has for the revision, and hash its files."""
        repository = cached_repository(source)
        reference = repository / "refs" / source.revision
        commit = reference.read_text().strip() if reference.is_file() else source.revision
        folder = repository / "snapshots" / commit
        if not COMMIT.fullmatch(commit) or not folder.is_dir():
            raise InputError(
                f"{source} is not in the hub cache {cache_folder()}",
                "download it, or set HF_HOME to the folder that has it",
            )
        names = source.in_use(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        files = {name: File((folder / name).stat().st_size, file_sha256(folder / name)) for name in names}
        return Pin(commit, files)

    def folder(self, source: Source, pin: Pin) -> Path:
        """The snapshot that the cache has."""
        if not (folder := snapshot(source, pin)).is_dir():
            raise InputError(f"{source} at {pin.commit} is not in the hub cache", "pin it where the hub can be reached")
        return folder


def fetch(lock: Lock, sources: Iterable[Source], hash_of: Callable[[Path], str]) -> None:
    """Download missing files of pinned sources, compare every byte, and print a line for each; InputError if unlike."""
    for source in sources:
        pin = lock[source]
        folder = snapshot(source, pin)
        if missing_files(source, pin):
            Hub().fetch(source, pin)
        check(source, pin, hash_of)
        say(f"{source}: {_describe(pin)}, as pinned, in {folder}")


def _describe(pin: Pin) -> str:
    size = f"{pin.size / 1e9:,.1f} GB" if pin.size >= 1e9 else f"{pin.size / 1e6:,.1f} MB"
    return f"{len(pin.files)} file{'s' * (len(pin.files) > 1)}, {size}"


def pin(lock: Lock, sources: Iterable[Source], registry: Hub | Cache, *, update: bool = False) -> Lock:
    """Pin sources that are not pinned yet, write the lock file, and print one line per source.

    ``update``: resolve again sources that are pinned already. Raises InputError if some could not be resolved; the
    message names them all, and the others are pinned.
    """
    new: dict[Source, Pin] = {}
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
                found = replace(found, shape=shape_of(folder), specials=Specials.read(folder), chat=chat_digest)
        except InputError as error:
            failed.append(error)
            continue
        if found is old:
            say(f"{source}: {found.commit} (already pinned)")
            continue
        new[source] = found
        state = "new" if old is None else "unchanged" if old == found else f"was {old.commit}"
        say(f"{source}: {found.commit} ({state}; {_describe(found)})")
    changed = Lock(lock.path, {**lock.pins, **{(source.kind, source.key): pin for source, pin in new.items()}})
    if new:
        changed.write()
    if failed:
        raise InputError("\n".join(error.message for error in failed), failed[0].hint)
    return changed
