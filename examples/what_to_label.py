# %% [markdown]
# # What to label next
#
# You have many inputs without labels, and time to label a few. `rank` puts those first that the model most likely
# gets wrong.

# %%
import torch

import neuralcov as nc
from neuralcov import demo

model = demo.train_digits(epochs=2, progress=False)  # stopped early, so that it makes mistakes
train, pool = demo.digits("train"), demo.digits("test")
cov = nc.Coverage(model, [nc.DSC(), nc.LCC()])
cov.calibrate(train.loader(100))

# %%
unlabelled = [images for images, _ in pool.loader(100)]
queue = nc.rank(cov, unlabelled)
for row in queue[:3]:
    print(row.rank, f"{row.score:.3f}", row.why)

# %% [markdown]
# Labels are known here, so that we can look: which share of the mistakes does each part of the queue hold?

# %%
with torch.no_grad():
    wrong = torch.cat([model(images).argmax(1) for images in unlabelled]) != pool.labels
for share in (0.05, 0.1, 0.2):
    first = queue.positions[: int(share * len(queue))]
    print(f"the first {share:.0%} hold {wrong[first].sum() / wrong.sum():.0%} of {int(wrong.sum())} mistakes")

# %% [markdown]
# `select` walks along the queue and passes over inputs that show nothing new, so that a budget is not spent on near
# duplicates.

# %%
few = nc.select(cov, unlabelled, budget=20)
print([row.id for row in few][:10])
