"""All experiments by name, and the jobs each is cut into."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neuralcov.core.errors import InputError
from neuralcov_lab.experiments import (
    diversity_generative,
    diversity_image,
    diversity_text,
    faults,
    fuzzing,
    illustrations,
    order,
    timing,
)
from neuralcov_lab.experiments.companions import with_companions
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.lcc import plan as lcc
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.searching import guides, retraining, rules
from neuralcov_lab.experiments.selecting import plan as selecting

PLANS: dict[str, Callable[[Scale], list[Job]]] = {
    "diversity-image": diversity_image.plan,
    "diversity-text": diversity_text.plan,
    "diversity-generative": diversity_generative.plan,
    "faults": faults.faults_plan,
    "faults-test": faults.faults_test_plan,
    "perturbations": faults.perturbations_plan,
    "fuzz": fuzzing.plan,
    "time": timing.plan,
    "order": order.plan,
    "figures": illustrations.plan,
    lcc.NAME: lcc.plan,
    selecting.NAME: selecting.plan,
    guides.NAME: guides.plan,
    rules.NAME: rules.plan,
    retraining.NAME: retraining.plan,
}


def jobs_of(names: Sequence[str], scale: Scale) -> list[Job]:
    """Return the jobs of some experiments, or of ``all``; one that several use appears once."""
    wanted = list(PLANS) if "all" in names else list(names)
    for name in wanted:
        if name not in PLANS:
            raise InputError(f"there is no experiment {name!r}: there are {', '.join(PLANS)} and all")
    return list({job.name: job for name in wanted for job in with_companions(PLANS[name](scale))}.values())
