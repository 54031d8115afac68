-- grain: one prompt group of one step; of columns that a run need not have. Scanned only where one of them is there.
-- Distances of two ratios are differences of their rho - 1, which is computed once. `sums`: those of the catalogue.
with
deviations as (
    select
        *, expm1(log_rho) as deviation, expm1(log_rho_new) as deviation_new, expm1(log_engine) as deviation_engine
    from usable
)
select
    step, group_id,
    max(tv_current_behavior) filter (isfinite(tv_current_behavior)) as exact_largest,
    sum(case when deviation < 0 then -deviation else 0 end - tv_current_behavior) filter (isfinite(tv_current_behavior) and deviation is not null)
        as sampled_minus_exact,
    sum(case
        when isfinite(deviation_new - deviation) then abs(deviation_new - deviation)
        else ratio_distance(log_rho_new, log_rho) end / 2 - tv_new_current) filter (isfinite(tv_new_current))
        as sampled_minus_exact_new,
    $sums
from deviations
group by step, group_id
