"""What Gatewright measures itself of every added stage that rewrites samples, whatever the stage says of its work."""

from specs.metrics.definition import definer

_define = definer("rewrites")

DEFINITIONS = (
    _define(
        "exact_duplicate_leakage",
        "samples",
        "block == 0",
        "exact duplicates across the split, after rewriting",
        "改写后跨集合完全重复",
        "rewritten samples.parquet: held-out samples whose normalised text is in train, or a question with its answer",
    ),
    _define(
        "near_duplicate_leakage",
        "samples",
        "block == 0",
        "near duplicates across the split, after rewriting",
        "改写后跨集合近似重复",
        "rewritten samples.parquet: held-out samples with a training text at Jaccard >= 0.7, by exact shingle sets",
    ),
    _define(
        "parent_leakage",
        "samples",
        "block == 0",
        "held-out samples that the parent was trained on, after rewriting",
        "改写后父训练已学过的留出样本",
        "rewritten samples.parquet: held-out samples against the training samples of every parent; 0 without a parent",
    ),
    _define(
        "samples_across",
        "samples",
        "block == 0",
        "samples moved to the other side of the split",
        "改写时换到另一集合的样本",
        "split of each sample_id in the rewritten samples.parquet against the one that was read",
    ),
    _define(
        "samples_left_out",
        "samples",
        "",
        "samples left out in rewriting",
        "改写时去掉的样本",
        "sample_ids of the samples.parquet that was read and not of the rewritten one, counted",
    ),
    _define(
        "samples_made",
        "samples",
        "",
        "samples made in rewriting",
        "改写时新增的样本",
        "sample_ids of the rewritten samples.parquet and not of the one that was read, counted",
    ),
)
