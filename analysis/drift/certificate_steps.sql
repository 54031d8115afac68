-- grain: one step. The horizon, the mean distance of new policy and sampler by position, and the largest distance of a
-- state.
with
places as (
    select step, position, sum(case when log_rho_new < 0 then -expm1(log_rho_new) else 0 end) as moved
    from token
    where invalid is null and log_rho_new is not null
    group by step, position
),
by_place as (select step, list(moved order by position) as moved from places group by step)
select
    step,
    max(position) + 1 as longest,
    count(*) / count(distinct seq_id) as length,
    avg(case when log_rho_new < 0 then -expm1(log_rho_new) else 0 end)
        filter (invalid is null and log_rho_new is not null) as distance,
    -- TV(new, sampler) of a state is at most the sum of both parts of its way
    max(least(1, tv_current_behavior::double + tv_new_current)) filter (
        invalid is null and isfinite(tv_current_behavior) and isfinite(tv_new_current)
    ) as largest_distance,
    count(distinct seq_id) filter (invalid is null and log_rho_new is not null) as n_moved,
    any_value(moved) as moved
from token
left join by_place using (step)
group by step
order by step
