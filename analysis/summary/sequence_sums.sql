-- grain: one sequence of one step, over its usable tokens. The one scan of the tokens for whatever adds up: groups are
-- made from it. What several sums have in common is computed once, in the subqueries.
create or replace temp table sequence_sums as
with
deviations as (  -- rho - 1, of the current and of the new policy
    select *, expm1(log_rho) as deviation, expm1(log_rho_new) as deviation_new from usable
)
select
    step, group_id, seq_id,
    count(*) as n_tokens,
    sum(log_rho) as log_w,
    sum(deviation) as signed_deviation,
    -- By itself: as a difference of the sums of |rho - 1| and rho - 1 it would not survive a heavy tail.
    sum(case when deviation < 0 then -deviation else 0 end) as shortfall,
    sum(deviation * deviation) as deviation_squared,
    sum(log_rho * log_rho) / 2 as k2,
    sum(case when abs(log_rho) < 1e-2 then expm1_minus_series(log_rho) else deviation - log_rho end) as k3,
    sum(case
        when abs(log_rho) < 1e-2 then reverse_kl_series(log_rho)
        when log_rho = '-inf'::double then 1
        else (log_rho - 1) * deviation + log_rho end) as reverse,
    count(log_rho_new) as n_new,
    sum(case
        when isfinite(deviation_new - deviation) then abs(deviation_new - deviation)
        else ratio_distance(log_rho_new, log_rho) end) as drift,
    sum(deviation_new) as signed_deviation_new,
    sum(case when deviation_new < 0 then -deviation_new else 0 end) as shortfall_new,
    count(clipped) as n_clip,
    count(clip_side) as n_side,
    count_if(clipped) as clipped,
    count_if(clip_side < 0) as clipped_low,
    count_if(clip_side > 0) as clipped_high,
    count_if(advantage <> 0) as n_signal,
    count_if(advantage > 0 and clipped is not null) as n_positive,
    count_if(advantage > 0 and clipped) as clipped_positive,
    count_if(advantage < 0 and clipped is not null) as n_negative,
    count_if(advantage < 0 and clipped) as clipped_negative,
    sum(version_lag::double) as version_lag
from deviations
group by step, group_id, seq_id;
