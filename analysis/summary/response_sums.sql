-- grain: one prompt group of one step; groups that the loss left out have sequences only. `which`: the responses that count.
-- `sums`: those of the catalogue.
select
    step, group_id,
    count(*) as n_sequences,
    $sums
from sequence
where $which
group by step, group_id
