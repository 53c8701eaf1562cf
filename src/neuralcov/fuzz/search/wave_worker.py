"""A worker of a campaign that many search: with the model and a copy of the campaign, it does the waves asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from neuralcov.coverage.packed_batches import pack_batch, unpack_batch
from neuralcov.fuzz.campaign.copy import CampaignCopy
from neuralcov.fuzz.campaign.log import WaveRecord
from neuralcov.fuzz.campaign.resume import join
from neuralcov.fuzz.campaign.setup import CampaignSetup
from neuralcov.fuzz.search.wave import JudgedWave, Search


class WaveWorker:
    """Answer messages of ``SharedSearch``.

    Args:
        setup: the campaign as it was set up there: the same model, criteria, calibration, seeds and settings.
    """

    def __init__(self, setup: CampaignSetup) -> None:
        self._setup = setup
        self._search: Search | None = None

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Do one wave.

        Args:
            message: ``number``, ``track`` and ``limit`` of the wave; ``news``, the waves since the last one; and
                ``campaign``, a copy of the campaign, the first time.
        """
        with self._setup.coverage.tap():
            if "campaign" in message:
                self._search = join(self._setup, CampaignCopy.from_message(message["campaign"]))
            search = self._search
            assert search is not None, "a worker is told the campaign first"
            for record, observed in message["news"]:
                _apply(search, WaveRecord.from_bytes(record), observed)
            before = search.coverage.snapshot() if search.settings.uses_coverage else None
            try:
                wave = search.draw(message["limit"], message["track"])
                told = _told(search, search.judge(wave), wave.mutants, message["limit"])
            finally:
                if before is not None:
                    # What the campaign makes of the wave comes back as news.
                    search.coverage.restore(before)
            return {"number": message["number"], **told}


def _told(search: Search, found: JudgedWave, mutants: torch.Tensor, limit: int | None) -> dict[str, Any]:
    """Return what a wave came to, as bytes."""
    record, sent, packed = found.record, np.zeros(0, dtype=np.int64), None
    if found.batch is not None:
        excluded = torch.zeros(found.batch.size, dtype=torch.bool)
        for criterion in search.coverage.criteria:
            excluded |= criterion.exclusions(found.batch).cpu() != 0
        wanted = torch.from_numpy(np.isin(found.rows, found.admitted)) | excluded
        sent = found.rows[wanted.numpy()]
        packed = pack_batch(found.batch.take(wanted.to(found.batch.device))) if len(sent) else None
    unsaved = found.admitted[record.candidates["saved"][found.admitted] == 0]
    extra = mutants[torch.from_numpy(unsaved).to(mutants.device)].cpu().numpy()
    record = replace(record, limit=limit, observed=found.admitted, unsaved=extra)
    return {"record": record.to_bytes(), "batch": packed, "sent": sent}


def _apply(search: Search, record: WaveRecord, observed: bytes | None) -> None:
    """Take in a wave of the campaign, this worker's own or another's."""
    if observed is not None:
        batch = unpack_batch(observed, search.coverage.device)
        search.coverage.propose(activations=batch).commit()
    search.state.apply(record)
