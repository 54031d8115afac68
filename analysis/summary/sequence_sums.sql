-- grain: one sequence of one step, over its usable tokens. The one scan of the tokens for whatever adds up: groups are
-- made from it. Terms of what is not logged are null, and sums leave them out. What several sums have in common is computed once, in the subqueries. `sums`: those that only one entry
-- of the catalogue needs.
create or replace temp table sequence_sums as
with
deviations as (  -- rho - 1, of the current and of the new policy
    select *, expm1(log_rho) as deviation, expm1(log_rho_new) as deviation_new from usable
)
select
    step, group_id, seq_id,
    count(*) as n_tokens,
    count_if(grouped) as n_grouped,
    count_if(log_rho is not null and logp_behavior is null) as n_recomputed,
    sum(log_rho) as log_w,
    sum(deviation) as signed_deviation,
    -- By itself: as a difference of the sums of |rho - 1| and rho - 1 it would not survive a heavy tail.
    sum(case when deviation < 0 then -deviation else 0 end) as shortfall,
    sum(deviation * deviation) as deviation_squared,
    sum(deviation_new) as signed_deviation_new,
    sum(case when deviation_new < 0 then -deviation_new else 0 end) as shortfall_new,
    count_if(advantage <> 0) as n_signal,
    $sums
from deviations
group by step, group_id, seq_id;
