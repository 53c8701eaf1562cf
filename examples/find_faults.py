# %% [markdown]
# # Inputs that the model gets wrong
#
# Turn, lighten and darken pictures that the model reads rightly, a little, until it misreads them.

# %%
import neuralcov as nc
from neuralcov import demo
from neuralcov.fuzz import Brightness, Contrast, Rotation

model, digits = demo.train_digits(progress=False), demo.digits("test")
fuzzer = nc.Fuzzer(
    nc.Coverage(model, [nc.NLC()]),
    digits.inputs[:300],
    digits.labels[:300],
    levels=digits.levels,
    # Whole pixels are a lot for pictures of 8×8: choose changes after which a person still reads the digit.
    mutations=[Contrast((0.85, 1.15)), Brightness((16,)), Rotation((-8, -4, 4, 8))],
    wave=64,
    seed=0,
)
campaign = fuzzer.run(calls=1500, progress=False)

# %%
stats = campaign.stats
print(f"{stats.distinct} different faults of {stats.roots} digits, in {stats.judged} pictures that the model saw")

# %% [markdown]
# Every fault can be made again from its origin, also by a mended model: that is how a campaign becomes a regression
# test.

# %%
again = fuzzer.replay(campaign.faults)
print(
    f"{sum(one.rebuilt for one in again)} of {len(again)} rebuilt, {sum(one.still_there for one in again)} still there"
)
