"""PALMA: as published, with proved accounting, and with no or an infinite budget."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from palmatch.domains.papers import Conference
from palmatch.guarantee import no_privacy, region_only
from palmatch.methods.assembly import Free, PreparedGame, PublishedAccounting, SoundAccounting, prepare_game
from palmatch.methods.registry import Game, Play, Prepare
from palmatch.methods.workspace import Settings, Workspace
from palmatch.palma.policy import SPENT_BACKOFF, Policy, noise_only, published, unlimited
from palmatch.problem import Problem


def published_policy(problem: Problem, settings: Settings) -> Policy:
    """Return PALMA's policy for this problem's domain."""
    truth = settings.truth_selection
    if truth is None:
        truth = 0.1 if isinstance(problem.domain, Conference) else 0.2
    return published(
        truth_selection=truth,
        truth_backoff=settings.truth_backoff,
        gamma=settings.gamma,
        noise=settings.noise,
        backoff_noise=settings.backoff_noise,
    )


def palma_policy(problem: Problem, settings: Settings) -> Policy:
    """Return the policy of `palma`: the published one, but an agent with no budget left passes over what is held."""
    return replace(published_policy(problem, settings), spent_backoff=SPENT_BACKOFF)


def palma_game(workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return the game of `palma`."""
    return prepare_game(workspace, palma_policy(workspace.problem, settings), SoundAccounting(settings))


def published_game(workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return the game of `published`."""
    return prepare_game(workspace, published_policy(workspace.problem, settings), PublishedAccounting(settings))


def noise_game(workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return the game of `noise`."""
    policy = noise_only(gamma=settings.gamma, noise=settings.noise, backoff_noise=settings.backoff_noise)
    guarantee = region_only("each agent plays what its region's representative would play")
    return prepare_game(workspace, policy, Free(guarantee, truth=False))


def unlimited_game(workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return the game of `unlimited`."""
    accounting = Free(no_privacy("each agent acts on its own utilities in every step"), truth=True)
    return prepare_game(workspace, unlimited(gamma=settings.gamma), accounting)


def _kept(game: Game, workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return a game that was put together before, or keep it for the next time; those of crowds take much memory."""
    if workspace.regions.grid is not None:
        return game(workspace, settings)
    for known, terms, prepared in workspace.games:
        if known is game and terms == settings:
            return cast("PreparedGame", prepared)
    workspace.games.append((game, settings, game(workspace, settings)))
    return cast("PreparedGame", workspace.games[-1][-1])


def in_rounds(game: Game) -> Prepare:
    """Return how to prepare the method that plays a game of rounds."""

    def prepare(workspace: Workspace, settings: Settings, trace: bool) -> Play:
        prepared = _kept(game, workspace, settings)
        return lambda chance: prepared.play(workspace, chance, trace=trace)

    return prepare
