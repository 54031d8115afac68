-- grain: one step. The tails that decide whether means of its ratios can be trusted, the horizon, and the largest
-- exact distance of a state. $kept: how many of the largest ratios to keep.
with
tails as (
    select
        step, count(*) as n_actions,
        max(log_rho, $kept) as top,
        max(log_rho_new, $kept) as top_new
    from action
    where valid
    group by step
)
select
    step, max(position) + 1 as longest,
    max(tv_current_behavior) filter (invalid is null and isfinite(tv_current_behavior)) as delta_max,
    any_value(n_actions) as n_actions,
    any_value(top) as top,
    any_value(top_new) as top_new
from token
left join tails using (step)
group by step
order by step
