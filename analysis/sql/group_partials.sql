-- grain: one prompt group of one step. Plain sums and log-sum-exps: they merge by addition, whatever split the rows.
with
peaks as (  -- of the step, so that weights beyond the floating-point range still have an effective sample size
    select step, max(log_rho) filter (invalid is null and log_rho > '-inf'::double) as peak from token group by step
),
token_terms as (
    select
        step, group_id,
        count(*) as n_rows,
        count(*) filter (invalid is null) as n_tokens,
        count(*) filter (invalid = 'nan') as n_invalid_nan,
        count(*) filter (invalid = 'infinite') as n_invalid_infinite,
        count(*) filter (invalid = 'positive') as n_invalid_positive,
        count(*) filter (invalid = 'advantage') as n_invalid_advantage,
        sum(exp(log_rho)) filter (invalid is null) as rho,
        sum(exp(2 * log_rho)) filter (invalid is null) as rho_squared,
        any_value(peak) as peak,
        sum(exp(log_rho - peak)) filter (invalid is null) as scaled,
        sum(exp(2 * (log_rho - peak))) filter (invalid is null) as scaled_squared,
        sum(abs(expm1(log_rho))) filter (invalid is null) as deviation,
        sum(greatest(-expm1(log_rho), 0)) filter (invalid is null) as shortfall,
        sum(expm1(log_rho) * expm1(log_rho)) filter (invalid is null) as deviation_squared,
        sum(-log_rho) filter (invalid is null) as k1,
        sum(log_rho * log_rho / 2) filter (invalid is null) as k2,
        sum(expm1_minus(log_rho)) filter (invalid is null) as k3,
        sum(reverse_kl(log_rho)) filter (invalid is null) as reverse,
        count(log_rho_new) filter (invalid is null) as n_new,
        sum(ratio_distance(log_rho_new, log_rho)) filter (invalid is null) as drift,
        sum(abs(expm1(log_rho_new))) filter (invalid is null) as deviation_new,
        sum(greatest(-expm1(log_rho_new), 0)) filter (invalid is null) as shortfall_new,
        count(clipped) filter (invalid is null) as n_clip,
        count(clip_side) filter (invalid is null) as n_side,
        count(*) filter (invalid is null and clipped) as clipped,
        count(*) filter (invalid is null and clip_side < 0) as clipped_low,
        count(*) filter (invalid is null and clip_side > 0) as clipped_high,
        count(clipped) filter (invalid is null and advantage > 0) as n_positive,
        count(*) filter (invalid is null and clipped and advantage > 0) as clipped_positive,
        count(clipped) filter (invalid is null and advantage < 0) as n_negative,
        count(*) filter (invalid is null and clipped and advantage < 0) as clipped_negative,
        count(gate) filter (invalid is null) as n_gate,
        sum(gate) filter (invalid is null) as gate,
        sum(case when advantage <> 0 then gate else 0 end) filter (invalid is null) as effective,
        count(*) filter (invalid is null and advantage <> 0) as n_signal,
        count(entropy) filter (invalid is null and isfinite(entropy)) as n_entropy,
        sum(entropy) filter (invalid is null and isfinite(entropy)) as entropy,
        sum(version_lag) filter (invalid is null) as version_lag,
        count(*) filter (invalid is null and isfinite(log_engine)) as n_engine,
        sum(ratio_distance(log_rho, log_engine)) filter (invalid is null and isfinite(log_engine)) as version_part,
        sum(abs(expm1(log_engine))) filter (invalid is null and isfinite(log_engine)) as engine_part,
        count(*) filter (invalid is null and isfinite(log_reference)) as n_reference,
        -- rho (e^x - 1 - x) with x = log_reference - log_rho; its limit at ratio 0 is e^log_reference
        sum(case
            when log_rho = '-inf'::double then exp(log_reference)
            else exp(log_rho) * expm1_minus(log_reference - log_rho) end)
            filter (invalid is null and isfinite(log_reference)) as reference,
        count(*) filter (invalid is null and isfinite(tv_current_behavior)) as n_exact,
        sum(tv_current_behavior) filter (invalid is null and isfinite(tv_current_behavior)) as exact_staleness,
        max(tv_current_behavior) filter (invalid is null and isfinite(tv_current_behavior)) as exact_largest,
        sum(chi2_current_behavior) filter (invalid is null and isfinite(tv_current_behavior)) as exact_chi2,
        count(*) filter (invalid is null and isfinite(tv_new_current)) as n_exact_new,
        sum(tv_new_current) filter (invalid is null and isfinite(tv_new_current)) as exact_drift
    from token
    join peaks using (step)
    group by step, group_id
),
log_weights as (  -- a sequence with an unusable token has no W
    select step, group_id, seq_id, sum(log_rho) as log_w, bool_or(invalid is not null) as undefined
    from token
    group by step, group_id, seq_id
),
squared as (
    select *, 2 * log_abs_expm1(log_w) as log_square,
        max(2 * log_abs_expm1(log_w)) over (partition by step, group_id) as top_square,
        max(log_w) over (partition by step, group_id) as top_w
    from log_weights
    where not undefined
),
sequence_terms as (
    select
        step, group_id,
        count(*) as n_weights,
        any_value(top_w) + ln(sum(case when isfinite(top_w) then exp(log_w - top_w) else 1 end)) as lse_w,
        2 * any_value(top_w) + ln(sum(case when isfinite(top_w) then exp(2 * (log_w - top_w)) else 1 end)) as lse_w_squared,
        any_value(top_square)
            + ln(sum(case when isfinite(top_square) then exp(log_square - top_square) else 1 end)) as lse_chi2
    from squared
    group by step, group_id
),
undefined_weights as (
    select step, group_id, count(*) as n_undefined from log_weights where undefined group by step, group_id
)
select token_terms.*, n_weights, lse_w, lse_w_squared, lse_chi2, coalesce(n_undefined, 0) as n_undefined
from token_terms
left join sequence_terms using (step, group_id)
left join undefined_weights using (step, group_id)
order by step, group_id
