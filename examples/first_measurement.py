# %% [markdown]
# # A first measurement
#
# Measure how varied a test suite is for one model, and read the answer. Put your own model and loaders in place of
# the demo's.

# %%
import neuralcov as nc
from neuralcov import demo

model = demo.train_digits(progress=False)  # any torch.nn.Module
train = demo.digits("train").loader(100)  # a DataLoader of its training data
test = demo.digits("test").loader(100)  # and one of its test set

# %% [markdown]
# `calibrate` learns what training data look like inside the model; `assess` runs the suite once, for all criteria.

# %%
cov = nc.Coverage(model, [nc.LCC(), nc.KMNC(100)])
cov.calibrate(train, held_out=0.2)
cov.assess(test, slices=["class"])
print(cov)

# %% [markdown]
# About 1 × as varied: the suite shows as many kinds of behaviour as so many fresh training inputs would. Far more
# inputs off the map than expected: look at their scaling first. Which classes does the suite show least of?

# %%
(classes,) = cov.by_slice()
for row in sorted(classes.rows, key=lambda row: row.alone["LCC"])[:3]:
    alone, lost = row.alone["LCC"], row.lost["LCC"]
    print(f"class {row.slice}: {row.inputs} inputs cover {alone:.3f} alone, {lost:.3f} is shown by no other")

# %% [markdown]
# What would half of the suite cover? Compare suites at one size.

# %%
half = cov.rarefied(cov.inputs // 2)
print({name: f"{value:.3f} ± {deviation:.3f}" for name, (value, deviation) in half.items()})

# %% [markdown]
# The same as a page to send around, and as a file that others can compare with or add to.

# %%
cov.report("report.html")
cov.save("suite.ncov")
