-- grain: one prompt group of one step; groups that the loss left out have sequences only. `which`: the responses that count.
-- `sums`: those of the catalogue.
select
    step, group_id,
    count(*) as n_sequences,
    count_if(grouped) as n_listed_in_group,
    count_if(isfinite(reward) and reward not in (0, 1)) as n_graded,
    $sums
from sequence
where $which
group by step, group_id
