-- grain: the whole range. Correlation of each column's probabilities with those of logp_current: at the same position,
-- and one position before and after, over the same rows. The placeholders take the four correlations of every column, and
-- one of how many sequences is looked at.
with beside as (
    select
        group_id, step,
        exp(logp_behavior) as logp_behavior,
        exp(logp_behavior_train) as logp_behavior_train,
        exp(logp_new) as logp_new,
        exp(logp_current) as here,
        if(lag(position) over sequence = position - 1, lag(exp(logp_current)) over sequence, null) as before,
        if(lead(position) over sequence = position + 1, lead(exp(logp_current)) over sequence, null) as after
    from usable
    where hash(step, seq_id) % $every = 0
    window sequence as (partition by step, seq_id order by position)
)
select
    count(distinct (step, group_id)) filter (before is not null or after is not null) as n_groups,
    $correlations
from beside
