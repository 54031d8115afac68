-- grain: one usable token that has a part of the measure, with whose it is. $keys: who owns a token; $term: log of its
-- part; $peak: the largest; $counts: whether it counts. Parts are taken relative to the largest: shares are ratios, so
-- the scale cancels.
create or replace temp view owned as
select
    $keys,
    step, group_id, seq_id, position, log_rho,
    $term as term,
    ($counts) as counts,
    case when $counts then exp($term - $peak) else 0 end as part
from term
left join (
    select step, seq_id, coalesce(prompt_id::varchar, prompt) as prompt from sequence where $prompt
) using (step, seq_id)
where $term is not null
