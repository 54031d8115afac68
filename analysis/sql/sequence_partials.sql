-- grain: one prompt group of one step that has tokens; groups that the loss left out have sequences only.
select
    step, group_id,
    count(*) as n_sequences,
    count(reward) filter (isfinite(reward)) as n_reward,
    sum(reward) filter (isfinite(reward)) as reward,
    sum(n_tokens) as response_length
from source
where step in (select step from token)
group by step, group_id
order by step, group_id
