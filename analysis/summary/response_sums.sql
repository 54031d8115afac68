-- grain: one prompt group of one step; groups that the loss left out have sequences only. `steps`: which steps count.
-- `sums`: those of the catalogue.
select
    step, group_id,
    count(*) as n_sequences,
    count_if(isfinite(reward) and reward not in (0, 1)) as n_graded,
    $sums
from sequence
where $steps
group by step, group_id
