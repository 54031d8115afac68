-- grain: one token of every response of some prompt groups, sorted. The placeholder takes one of how many groups is looked at.
select
    step, seq_id, group_id, position, token_id, behavior_version, version_lag, invalid,
    logp_behavior, logp_behavior_train, logp_current, logp_new, logp_gate, logp_reference,
    entropy, advantage, clipped, clip_side
from examined
where hash(step, group_id) % $every = 0
order by step, seq_id, position
