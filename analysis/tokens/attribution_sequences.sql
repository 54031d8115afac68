-- grain: one sampled response: what its tokens say, and what was logged of it; responses that the loss left out have no
-- tokens. $chosen: which ones. Sums over tokens are logarithms: they hold for ratios of any size.
with
tokens as (
    select *, max(case when invalid is null then log_abs_expm1(log_rho) end) over (partition by step, seq_id) as peak
    from token
    where $chosen
),
measured as (
    select
        step, seq_id, any_value(group_id) as group_id,
        count(*) as tokens,
        count(*) filter (invalid is not null) as unusable,
        case when count(invalid) = 0 then sum(log_rho) end as log_w,  -- one unusable token leaves W undefined
        max(log_rho) filter (invalid is null) as max_log_ratio,
        min(log_rho) filter (invalid is null) as min_log_ratio,
        any_value(peak) + ln(sum(case when isfinite(peak) then exp(log_abs_expm1(log_rho) - peak) else 1 end)
            filter (invalid is null)) as log_deviation,
        2 * any_value(peak) + ln(sum(case when isfinite(peak) then exp(2 * (log_abs_expm1(log_rho) - peak)) else 1 end)
            filter (invalid is null)) as log_chi2,
        avg(clipped::int) filter (invalid is null) as clipped,
        avg(entropy) filter (invalid is null and isfinite(entropy)) as entropy,
        max(version_lag) filter (invalid is null) as version_lag,
        min(advantage) filter (invalid is null) as lowest_advantage,
        max(advantage) filter (invalid is null) as highest_advantage
    from tokens
    group by step, seq_id
),
logged as (
    select step, seq_id, group_id, prompt_id, prompt, response, n_tokens, reward, dropped from sequence where $chosen
)
select
    step, seq_id,
    coalesce(logged.group_id, measured.group_id) as group_id,
    prompt_id, prompt, response, reward,
    -- of the tokens' advantages the one farthest from 0
    case when highest_advantage >= -lowest_advantage then highest_advantage else lowest_advantage end as advantage,
    coalesce(n_tokens, tokens) as n_tokens,
    coalesce(unusable, 0) as n_unusable,
    log_w,
    log_w / tokens as mean_log_ratio,
    max_log_ratio, min_log_ratio,
    log_deviation - ln(tokens - unusable) as log_mean_deviation,
    log_chi2,
    clipped, entropy, version_lag, dropped
from measured
full outer join logged using (step, seq_id)
