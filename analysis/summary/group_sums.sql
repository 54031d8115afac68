-- grain: one prompt group of one step. Plain sums and log-sum-exps: they merge by addition, whatever split the rows.
-- `sums`: those of sequence_sums.sql.
with
token_sums as (
    select
        step, group_id,
        sum(n_tokens)::bigint as n_tokens,
        sum(n_grouped)::bigint as n_grouped,
        $sums
    from sequence_sums
    group by step, group_id
),
whole as (  -- a sequence with an unusable token, or with one that has no ratio, has no W
    select step, group_id, case when n_ratios = n_tokens then log_w end as log_w
    from sequence_sums anti join unusable_sums using (step, seq_id)
),
log_weights as (
    select *, 2 * log_abs_expm1(log_w) as log_square from whole where log_w is not null
),
without_weight as (
    select step, group_id, count(*) as n_without_weight from whole where log_w is null group by step, group_id
),
tops as (
    select step, group_id, max(log_w) as top_w, max(log_square) as top_square from log_weights group by step, group_id
),
weight_sums as (
    select
        step, group_id,
        count(*) as n_weights,
        any_value(top_w) + ln(sum(case when isfinite(top_w) then exp(log_w - top_w) else 1 end)) as lse_w,
        2 * any_value(top_w)
            + ln(sum(case when isfinite(top_w) then exp(2 * (log_w - top_w)) else 1 end)) as lse_w_squared,
        any_value(top_square)
            + ln(sum(case when isfinite(top_square) then exp(log_square - top_square) else 1 end)) as lse_chi2
    from log_weights join tops using (step, group_id)
    group by step, group_id
),
unusable as (
    select
        step, group_id,
        count(*) as n_undefined,
        sum(n_invalid)::bigint as n_invalid,
        sum(n_invalid_nan)::bigint as n_invalid_nan,
        sum(n_invalid_infinite)::bigint as n_invalid_infinite,
        sum(n_invalid_positive)::bigint as n_invalid_positive,
        sum(n_invalid_advantage)::bigint as n_invalid_advantage
    from unusable_sums
    group by step, group_id
)
select *
from token_sums
full join unusable using (step, group_id)
left join weight_sums using (step, group_id)
left join without_weight using (step, group_id)
order by step, group_id
