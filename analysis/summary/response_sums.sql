-- grain: one prompt group of one step; groups that the loss left out have sequences only. $all: of every step, otherwise
-- of those that have tokens.
select
    step, group_id,
    count(*) as n_sequences,
    count(reward) filter (isfinite(reward)) as n_reward,
    sum(reward) filter (isfinite(reward)) as reward,
    sum(n_tokens) as response_length
from sequence
where $all or step in (select step from sequence_sums union select step from unusable_sums)
group by step, group_id
