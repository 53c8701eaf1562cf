"""Begin a campaign, read one back from its folder, and go on with it.

A folder holds the log of all waves and the coverage state before one of them, saved now and then. To go on, waves
before the saved state are applied as logged, since coverage has seen them. Waves since are searched again: a wave is a
function of the state before it, so that on the same machine they give the same, and coverage catches up with the log.
Where a wave comes out otherwise, coverage observes what the log says was kept.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from neuralcov.core.errors import CampaignError, CoverageWarning
from neuralcov.fuzz.campaign.copy import CampaignCopy
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.log import WaveRecord
from neuralcov.fuzz.campaign.setup import CampaignSetup
from neuralcov.fuzz.limits import Limits
from neuralcov.fuzz.search.seeds import SeedReport
from neuralcov.fuzz.search.wave import Search


@dataclass(frozen=True, eq=False)
class OpenCampaign:
    """Hold a campaign that can be searched further or looked at.

    Args:
        search: with everything found so far.
        report: what the model makes of the seeds.
        seed_values: coverage after the seeds, by criterion.
        exact: whether all waves that were searched again came out as logged.
        can_go_on: whether coverage has seen what was found; not if the campaign was only read.
    """

    search: Search
    report: SeedReport
    seed_values: Mapping[str, float]
    exact: bool = True
    can_go_on: bool = True


def begin(setup: CampaignSetup, folder: CampaignFolder | None, limits: Limits) -> OpenCampaign:
    """Observe the seeds, and set up the folder."""
    # Before the model runs, as on resuming: buffers may change as it does.
    weights = {} if folder is None else setup.weights()
    used = setup.settings.uses_coverage
    report = setup.survey(observe=used)
    search = setup.search(report)
    values = setup.coverage.values(warn=False) if used else {}
    if folder is not None:
        config = {**setup.describe(limits, report, values), "weights": weights}
        words = getattr(setup.input_format, "words", None)
        folder.create(config, setup.seed_arrays(report), setup.coverage if used else None, words)
    return OpenCampaign(search, report, values)


def read(setup: CampaignSetup, folder: CampaignFolder) -> OpenCampaign:
    """Read a campaign to look at its faults; coverage is left as it is."""
    campaign, _ = _reopen(setup, folder, None, going_on=False)
    return campaign


def resume(setup: CampaignSetup, folder: CampaignFolder) -> OpenCampaign:
    """Go on: apply the logged waves up to the saved coverage, then search the later ones again.

    Without a saved coverage, observe the seeds and search all waves again. Where coverage takes no part, all waves are
    applied as logged.
    """
    used, coverage = setup.settings.uses_coverage, setup.coverage
    setup.require_weights(folder.config(), str(folder.path))
    latest = folder.latest_coverage() if used else None
    upto = latest[0] if latest is not None else 0 if used else None
    campaign, later = _reopen(setup, folder, upto, going_on=True)
    if latest is not None:
        folder.require_log_up_to(latest[0], campaign.search.state.counts.waves)
        coverage.load_state(latest[1], same_run=True)
    elif used:
        _observe_seeds(setup, folder, campaign.seed_values)
    cut = folder.repair()
    if cut:
        said = f"the last {cut:,} bytes were no whole wave and were cut off: a kill leaves such, or damage"
        warnings.warn(f"{folder.log.path}: {said}", CoverageWarning, stacklevel=5)
    exact = True
    for record in later:
        exact = campaign.search.repeat(record) and exact
    return OpenCampaign(campaign.search, campaign.report, campaign.seed_values, exact)


def join(setup: CampaignSetup, copy: CampaignCopy) -> Search:
    """Build a search that stands where the campaign of another process does."""
    setup.require_weights(copy.config(), copy.path)
    campaign, _ = _reopen(setup, copy, None, going_on=True)
    if copy.coverage is not None:
        setup.coverage.load_state(io.BytesIO(copy.coverage), same_run=True)
    return campaign.search


def copy_of(opened: OpenCampaign, setup: CampaignSetup, folder: CampaignFolder) -> CampaignCopy:
    """Return a campaign as it stands between two waves; its log must be written."""
    coverage = setup.coverage.fork().to_bytes() if setup.settings.uses_coverage else None
    return CampaignCopy(folder.config(), setup.seed_arrays(opened.report), list(folder.log.read()), coverage)


def _reopen(
    setup: CampaignSetup, folder: CampaignFolder | CampaignCopy, upto: int | None, *, going_on: bool
) -> tuple[OpenCampaign, list[WaveRecord]]:
    """Build a campaign from its folder; return it and the waves from ``upto`` on, which are not applied yet."""
    config, arrays = folder.config(), folder.seeds()
    excluded = {int(row): reason for row, reason in config["left out"].items()}
    margins = (arrays["margins"], arrays["rivals"]) if "margins" in arrays else None
    report = SeedReport(arrays["predictions"], arrays["usable"].astype(bool), excluded, margins=margins)
    setup.require_same(report, config, str(folder.path), going_on=going_on)
    if setup.checks or setup.second_model is not None:
        again = setup.survey(observe=False)
        report = SeedReport(report.predictions, report.can_be_seed, excluded, again.result, margins)
    search = setup.search(report)
    later = []
    for record in folder.records():
        if upto is not None and record.wave >= upto:
            later.append(record)
        else:
            search.state.apply(record)
    return OpenCampaign(search, report, config["coverage of the seeds"], can_go_on=going_on), later


def _observe_seeds(setup: CampaignSetup, folder: CampaignFolder, seed_values: Mapping[str, float]) -> None:
    """Have coverage observe the seeds, where the folder has lost its state."""
    setup.survey(observe=True)
    for name, value in setup.coverage.values(warn=False).items():
        # On other hardware it is not the same to the bit.
        if not math.isclose(value, seed_values[name], rel_tol=1e-3):
            raise CampaignError(
                f"{folder.path}: no coverage is saved there, and {name} after the seeds is {value:.6g}, not "
                f"{seed_values[name]:.6g} as at the start; restore the folder coverage from a copy, or build a new "
                "Fuzzer with a coverage that has observed what it had"
            )
