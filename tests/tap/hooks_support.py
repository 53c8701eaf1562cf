"""A model run once, and a recurrent one."""

from neuralcov.tap import Batch, Tap


def run(model, inputs, labels=None, lengths=None, predictions=False, **options):
    return Tap(model, **options).run(Batch(inputs, labels), lengths=lengths, predictions=predictions)[0]
