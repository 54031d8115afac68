-- grain: one prompt group of one step; of columns that a run need not have. Scanned only where one of them is there.
-- `deviations`: rho - 1 of each policy. `sums`: those of the catalogue.
with
deviations as (
    select *, $deviations from usable
)
select
    step, group_id,
    max(tv_current_behavior) filter (isfinite(tv_current_behavior)) as exact_largest,
    $sums
from deviations
group by step, group_id
